/* Calls between peers run at most once: what src/reverie/rpc/peer_core.h promises, as a model.
 *
 * Two clients call one server, three calls each. Links are cut, the server dies and comes back as
 * a new run, a client that hears nothing for long gives its session up. A link is a pair of
 * streams: what is on it goes with it, and what arrives is a prefix of what was sent.
 *
 * Held in every state: no call runs twice, over all runs of the server, and an answer is to a call
 * that ran. Held at the end: each call was answered or failed (spin finds a client that waits for
 * ever as an invalid end state).
 *
 *     spin -a at_most_once.pml && cc -O2 -o pan pan.c && ./pan
 *
 * LOSES_RUN leaves out the rule that a new run of the server fails what was sent to the old one:
 * tests see that the model finds the call that runs twice. What it prints in a simulation, a line an
 * event, is replayed on the code by tests/sim/model_traces_test.cc.
 */
#define CLIENTS 2
#define CALLS 3
#define CUTS 1
#define RESTARTS 1
#define SILENCES 1

mtype = { RESUME, RESUMED, CALL, ANSWER };
mtype = { UNSENT, SENT, ANSWERED, FAILED };

/* kind, session of the client, run of the server or sequence, what was received or the call */
chan to_server[CLIENTS] = [5] of { mtype, byte, byte, byte };
chan to_client[CLIENTS] = [5] of { mtype, byte, byte, byte };
bool is_up[CLIENTS];

byte executed[6];
mtype state[6];

byte server_run = 1;
/* Of the server, by client; gone with its run. */
byte session_of[CLIENTS];   /* the client's session that this state belongs to; 0: none */
byte server_got[CLIENTS];   /* the last sequence of a call that arrived */
byte answers[CLIENTS];      /* of them, answered; the calls themselves in `ran` */
byte ran[6];                /* ran[client * CALLS + sequence - 1] - 1 is the call */

byte cuts = CUTS;
byte restarts = RESTARTS;
byte silences = SILENCES;

inline drop_link(c)
{
    is_up[c] = false;
    do
    :: to_server[c]?_, _, _, _
    :: to_client[c]?_, _, _, _
    :: empty(to_server[c]) && empty(to_client[c]) -> break
    od
}

inline forget(c)
{
    session_of[c] = 0;
    server_got[c] = 0;
    answers[c] = 0
}

/* What is no longer needed makes no other states. */
inline tidy()
{
    their_run = 0; their_got = 0; call = 0; i = 0
}

proctype Client(byte me)
{
    byte session = 1;      /* its own state */
    byte known = 0;        /* of the server; 0: not known yet */
    byte base = 0;         /* the call that has sequence 1 */
    byte sent = 0;         /* sequences sent on this link */
    byte got = 0;          /* answers, in order */
    byte their_run, their_got, call, i;
    bool is_open = false;

    do
    :: atomic { !is_up[me] && got + base < CALLS ->
            is_up[me] = true; is_open = false;
            to_server[me]!RESUME(session, known, got);
            printf("dial %d\n", me) }

    :: atomic { is_up[me] && to_client[me]?[RESUMED, _, _, _] ->
            to_client[me]?RESUMED(_, their_run, their_got);
            if
            :: known != 0 && their_run != known ->
                /* Another run: what was sent is lost with the old one. */
                i = base;
                do
                :: i < CALLS ->
                    if
#ifndef LOSES_RUN
                    :: state[me * CALLS + i] == SENT -> state[me * CALLS + i] = FAILED
#else
                    :: state[me * CALLS + i] == SENT -> state[me * CALLS + i] = UNSENT
#endif
                    :: else
                    fi;
                    i++
                :: else -> break
                od;
                do
                :: base < CALLS && state[me * CALLS + base] != UNSENT -> base++
                :: else -> break
                od;
                got = 0; sent = 0
            :: else -> sent = their_got
            fi;
            known = their_run; is_open = true;
            printf("open %d\n", me);
            tidy() }

    :: atomic { is_up[me] && is_open && base + sent < CALLS ->
            call = me * CALLS + base + sent;
            sent++;
            if
            :: state[call] == UNSENT -> state[call] = SENT
            :: else
            fi;
            to_server[me]!CALL(session, sent, call);
            printf("call %d %d\n", me, call);
            tidy() }

    :: atomic { is_up[me] && is_open && to_client[me]?[ANSWER, _, _, _] ->
            to_client[me]?ANSWER(_, i, call);
            if
            :: i == got + 1 ->
                got++;
                assert(executed[call] == 1);
                assert(state[call] == SENT);
                state[call] = ANSWERED;
                printf("answered %d %d\n", me, call)
            :: else  /* known */
            fi;
            tidy() }

    :: atomic { silences > 0 && got + base < CALLS ->
            /* Out of reach for too long: the session ends, what was sent has failed. */
            silences--;
            printf("silence %d\n", me);
            drop_link(me);
            is_open = false; session++; known = 0; got = 0; sent = 0;
            i = base;
            do
            :: i < CALLS ->
                if
                :: state[me * CALLS + i] == SENT -> state[me * CALLS + i] = FAILED
                :: else
                fi;
                i++
            :: else -> break
            od;
            do
            :: base < CALLS && state[me * CALLS + base] != UNSENT -> base++
            :: else -> break
            od;
            tidy() }

    :: atomic { base + got == CALLS -> break }
    od;
    for (i : 0 .. CALLS - 1) {
        printf("end %d %d %e\n", me, me * CALLS + i, state[me * CALLS + i]);
        assert(state[me * CALLS + i] == ANSWERED || state[me * CALLS + i] == FAILED)
    }
}

proctype Server()
{
    byte session, number, call, c;
end:
    do
    :: atomic { (len(to_server[0]) > 0 || len(to_server[1]) > 0) ->
            if
            :: len(to_server[0]) > 0 -> c = 0
            :: len(to_server[1]) > 0 -> c = 1
            fi;
            if
            :: to_server[c]?RESUME(session, number, call) ->
                printf("resume %d\n", c);
                if
                :: session_of[c] != session || number != server_run ->
                    /* Another state of the client, or one that knows another run. */
                    forget(c);
                    session_of[c] = session;
                    call = 0
                :: else
                fi;
                to_client[c]!RESUMED(session, server_run, server_got[c]);
                /* What the client has not received goes again. */
                do
                :: call < answers[c] ->
                    to_client[c]!ANSWER(session, call + 1, ran[c * CALLS + call] - 1);
                    call++
                :: else -> break
                od
            :: to_server[c]?CALL(session, number, call) ->
                if
                :: number == server_got[c] + 1 ->
                    server_got[c]++;
                    executed[call]++;
                    printf("run %d %d\n", c, call);
                    assert(executed[call] <= 1);
                    ran[c * CALLS + answers[c]] = call + 1;
                    answers[c]++;
                    to_client[c]!ANSWER(session, answers[c], call)
                :: else  /* known */
                fi
            fi;
            session = 0; number = 0; call = 0; c = 0 }
    od
}

/* In a simulation faults come late, too. */
inline linger()
{
#ifdef TRACED
    select (patience : 0 .. 40);
    do
    :: patience > 0 -> patience--
    :: else -> break
    od
#else
    skip
#endif
}

proctype Faults()
{
#ifdef TRACED
    byte patience;
#endif
    linger();
end:
    do
    :: atomic { cuts > 0 && is_up[0] -> cuts--; drop_link(0); printf("cut 0\n") }; linger()
    :: atomic { cuts > 0 && is_up[1] -> cuts--; drop_link(1); printf("cut 1\n") }; linger()
    :: atomic { restarts > 0 ->
            restarts--; server_run++;
            printf("restart\n");
            drop_link(0); drop_link(1);
            forget(0); forget(1) }; linger()
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. CLIENTS * CALLS - 1) { state[i] = UNSENT }
        run Server(); run Faults(); run Client(0); run Client(1)
    }
}
