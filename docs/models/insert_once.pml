/* Inserts over a network go in once: what docs/decisions/0004-inserts-once.md promises, as a model
 * of src/reverie/native_wire/insert_session.h and insert_window.h.
 *
 * Two writers send three numbered items each to one server, whose table takes an item at once, later
 * or never. Streams are cut, and the server may go on reading what an old stream has brought, and
 * have items of it wait, while its writer has begun another. A writer gives an item up; the server
 * comes back as a new run. The two writers are alike and share nothing but the server's run, so only
 * the first one's streams are cut and only its items given up.
 *
 *     writer 0   stream 0 --x             of a writer at most two streams at a time: the one that it
 *                stream 1 ----> server    has, and one that the server is not done with
 *
 * Held in every state: no item goes in twice in one run of the server, items go in in the order of
 * their numbers, and what is confirmed is in. With JOURNAL, where what is in outlives the server: no
 * item goes in twice over all runs. Held at the end: each item was confirmed or given up (spin finds
 * a writer that waits for ever as an invalid end state).
 *
 *     spin -a insert_once.pml && cc -O2 -o pan pan.c && ./pan
 *
 * Rules that can be left out, of which tests see that the model finds what goes wrong then:
 *   LOSES_NUMBERS   an item that is in is confirmed without a look at it
 *   LOSES_TURNS     a stream is read when nothing of the one before is under way
 *   LOSES_ORDER     what waits of a stream that has ended is taken back the last first
 *   LOSES_AGE       a stream whose headers come after those of a newer one is refused
 *
 * What it prints in a simulation, a line an event, is replayed on the code by
 * tests/sim/model_traces_test.cc.
 */
#define CLIENTS 2
#define ITEMS 3
#define CUTS 1
#define RESTARTS 1
#define GIVEN_UP 1

#define STREAMS 4   /* of writer c: 2c and 2c + 1 */
#define NONE 255

mtype = { BEGIN, ITEM, CONFIRM };
mtype = { OPEN, CONFIRMED, ABANDONED };

/* kind, number and settled_below; of BEGIN the stream's ordinal */
chan to_server[STREAMS] = [4] of { mtype, byte, byte };
chan to_client[STREAMS] = [3] of { mtype, byte };
bool is_ours[STREAMS];    /* the writer's end is open */
bool is_theirs[STREAMS];  /* the server has not seen the end */

/* Of the writers, by writer * ITEMS + number - 1. */
mtype state[6];

/* Of the server. */
bool is_in[6];             /* what its sessions remember */
byte inserted[6];          /* inserts of the item, in this run; with JOURNAL in all runs */
byte last[CLIENTS];        /* the number that went in last */
bool waits[12];            /* by stream * ITEMS + number - 1: under way */
byte current[CLIENTS];     /* the stream whose turn it is */
byte following[CLIENTS];   /* the stream that is next */
bool is_aborted[STREAMS];  /* another took over: nothing of it is read any more */
byte newest[CLIENTS];      /* the ordinal of the newest stream */

byte cuts = CUTS;
byte restarts = RESTARTS;
byte given_up = GIVEN_UP;

#define ITEM_OF(c, number) ((c) * ITEMS + (number) - 1)
#define WAIT_OF(s, number) ((s) * ITEMS + (number) - 1)
#define IS_WAITING(s) (waits[(s) * ITEMS] || waits[(s) * ITEMS + 1] || waits[(s) * ITEMS + 2])
/* No stream of that number is known to the server, and nothing of one waits. */
#define IS_FREE(s) (!is_theirs[s] && !IS_WAITING(s))
#ifdef LOSES_TURNS
#define IS_DECIDED(c) true
#else
#define IS_DECIDED(c) (!IS_WAITING(2 * (c)) && !IS_WAITING(2 * (c) + 1))
#endif

inline promote(c)
{
    if
    :: current[c] == NONE && following[c] != NONE && IS_DECIDED(c) ->
        current[c] = following[c];
        following[c] = NONE;
        printf("turn %d %d\n", c, current[c])
    :: else
    fi
}

inline confirm(s, number)
{
    assert(inserted[ITEM_OF(s / 2, number)] == 1);
    if
    :: is_ours[s] && is_theirs[s] && !is_aborted[s] -> to_client[s]!CONFIRM(number)
    :: else
    fi
}

inline drop_stream(s)
{
    is_ours[s] = false;
    do
    :: to_client[s]?_, _
    :: empty(to_client[s]) -> break
    od
}

inline drain(s)
{
    do
    :: to_server[s]?_, _, _
    :: empty(to_server[s]) -> break
    od
}

inline settle_first()
{
    do
    :: base <= ITEMS && state[ITEM_OF(me, base)] != OPEN -> base++
    :: else -> break
    od
}

proctype Client(byte me)
{
    byte stream = NONE;
    byte base = 1;   /* all numbers below are settled */
    byte next = 1;   /* to be sent */
    byte ordinal = 0;
    byte number;

    do
    :: atomic { (stream == NONE || !is_ours[stream]) && base <= ITEMS &&
                (IS_FREE(2 * me) || IS_FREE(2 * me + 1)) ->
            stream = 2 * me;
            if
            :: IS_FREE(stream)
            :: else -> stream++
            fi;
            is_ours[stream] = true; is_theirs[stream] = true;
            next = base;
            ordinal++;
            to_server[stream]!BEGIN(ordinal, 0);
            printf("begin %d %d %d\n", me, stream, ordinal) }

    :: atomic { stream != NONE && is_ours[stream] && next <= ITEMS ->
            /* What comes later may say that more is settled. */
            do
            :: next <= ITEMS ->
                if
                :: state[ITEM_OF(me, next)] == OPEN ->
                    to_server[stream]!ITEM(next, base);
                    printf("send %d %d %d\n", me, stream, next)
                :: else
                fi;
                next++
            :: next == base + 1 || next > ITEMS -> break
            od }

    :: atomic { stream != NONE && is_ours[stream] && nempty(to_client[stream]) ->
            do
            :: to_client[stream]?CONFIRM(number) ->
                printf("confirmed %d %d\n", me, number);
                if
                :: state[ITEM_OF(me, number)] == OPEN -> state[ITEM_OF(me, number)] = CONFIRMED
                :: else
                fi
            :: empty(to_client[stream]) -> break
            od;
            number = 0;
            settle_first() }

    :: atomic { me == 0 && given_up > 0 && base <= ITEMS ->
            given_up--;
            if
            :: state[ITEM_OF(me, 1)] == OPEN -> number = 1
            :: state[ITEM_OF(me, 2)] == OPEN -> number = 2
            :: state[ITEM_OF(me, 3)] == OPEN -> number = 3
            fi;
            state[ITEM_OF(me, number)] = ABANDONED;
            printf("give_up %d %d\n", me, number);
            if
            :: number < next && stream != NONE && is_ours[stream] ->
                /* What the server has of it goes with the stream. */
                drop_stream(stream);
                printf("drop %d %d\n", me, stream)
            :: else
            fi;
            number = 0;
            settle_first() }

    :: atomic { base > ITEMS ->
            if
            :: stream != NONE && is_ours[stream] ->
                drop_stream(stream);
                printf("drop %d %d\n", me, stream)
            :: else
            fi;
            break }
    od;
    for (number : 1 .. ITEMS) {
        assert(state[ITEM_OF(me, number)] == CONFIRMED || state[ITEM_OF(me, number)] == ABANDONED)
    }
}

/* The call that brings a writer's messages. */
proctype Stream(byte s)
{
    byte number, settled;
    byte c = s / 2;
end:
    do
    :: atomic { is_theirs[s] && to_server[s]?[BEGIN, _, _] ->
            to_server[s]?BEGIN(number, _);
#ifndef LOSES_AGE
            if
            :: number < newest[c] ->
                drain(s);
                is_theirs[s] = false;
                printf("refuse %d %d %d\n", c, s, number);
                number = 0;
                goto end
            :: else -> newest[c] = number
            fi;
#endif
            printf("attach %d %d %d\n", c, s, number);
            number = 0;
            if
            :: following[c] != NONE -> is_aborted[following[c]] = true
            :: else
            fi;
            if
            :: current[c] != NONE -> is_aborted[current[c]] = true
            :: else
            fi;
            following[c] = s;
            promote(c) }

    :: atomic { is_theirs[s] && current[c] == s && !is_aborted[s] && to_server[s]?[ITEM, _, _] ->
            to_server[s]?ITEM(number, settled);
            assert(number >= settled);
            printf("take %d %d %d %d %d\n", c, s, number, settled, is_in[ITEM_OF(c, number)]);
            do
            :: settled > 1 ->
                settled--;
                is_in[ITEM_OF(c, settled)] = false
            :: else -> break
            od;
            if
#ifndef LOSES_NUMBERS
            :: is_in[ITEM_OF(c, number)] -> confirm(s, number)
#endif
            :: else -> waits[WAIT_OF(s, number)] = true
            fi;
            number = 0; settled = 0 }

    :: atomic { is_theirs[s] && (!is_ours[s] || is_aborted[s]) &&
                /* Its headers have come, or it never was. */
                !to_server[s]?[BEGIN, _, _] && (current[c] == s || following[c] == s) ->
            assert(!is_ours[s]);
            drain(s);
            is_theirs[s] = false; is_aborted[s] = false;
            printf("end %d %d\n", c, s);
            if
            :: current[c] == s -> current[c] = NONE
            :: else
            fi;
            if
            :: following[c] == s -> following[c] = NONE
            :: else
            fi;
            promote(c) }

    :: atomic { is_theirs[s] && !is_ours[s] && to_server[s]?[BEGIN, _, _] ->
            /* The headers are lost with the rest. */
            drain(s);
            is_theirs[s] = false;
            printf("lost %d %d\n", c, s) }
    od
}

/* Takes what waits: of a stream the first, or, once that has ended, takes back the last. */
proctype Table(byte s)
{
    byte number;
    byte c = s / 2;
end:
    do
    :: atomic { IS_WAITING(s) ->
            number = 1;
            do
            :: waits[WAIT_OF(s, number)] -> break
            :: else -> number++
            od;
            waits[WAIT_OF(s, number)] = false;
            inserted[ITEM_OF(c, number)]++;
            assert(inserted[ITEM_OF(c, number)] <= 1);
            assert(number > last[c]);
            last[c] = number;
            is_in[ITEM_OF(c, number)] = true;
            printf("admit %d %d %d\n", c, s, number);
            confirm(s, number);
            number = 0;
            promote(c) }

    :: atomic { IS_WAITING(s) && (!is_theirs[s] || (current[c] != s)) ->
#ifndef LOSES_ORDER
            number = ITEMS;
            do
            :: waits[WAIT_OF(s, number)] -> break
            :: else -> number--
            od;
#else
            number = 1;
            do
            :: waits[WAIT_OF(s, number)] -> break
            :: else -> number++
            od;
#endif
            waits[WAIT_OF(s, number)] = false;
            printf("take_back %d %d %d\n", c, s, number);
            number = 0;
            promote(c) }
    od
}

/* In a simulation faults come late, too. */
inline linger()
{
#ifdef TRACED
    select (patience : 0 .. 60);
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
    byte s, i;
#ifdef TRACED
    byte patience;
#endif
    linger();
end:
    do
    :: atomic { cuts > 0 && (is_ours[0] || is_ours[1]) ->
            cuts--;
            if
            :: is_ours[0] -> s = 0
            :: else -> s = 1
            fi;
            drop_stream(s);
            printf("cut %d %d\n", s / 2, s);
            s = 0 };
            linger()

    :: atomic { restarts > 0 ->
            restarts--;
            for (s : 0 .. STREAMS - 1) {
                drop_stream(s);
                drain(s);
                is_theirs[s] = false; is_aborted[s] = false
            }
            for (i : 0 .. STREAMS * ITEMS - 1) { waits[i] = false }
            for (i : 0 .. CLIENTS - 1) { current[i] = NONE; following[i] = NONE; newest[i] = 0 }
#ifndef JOURNAL
            for (i : 0 .. CLIENTS * ITEMS - 1) { is_in[i] = false; inserted[i] = 0 }
            for (i : 0 .. CLIENTS - 1) { last[i] = 0 }
#endif
            printf("restart\n");
            s = 0; i = 0 };
            linger()
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. CLIENTS * ITEMS - 1) { state[i] = OPEN }
        for (i : 0 .. CLIENTS - 1) { current[i] = NONE; following[i] = NONE }
        run Faults();
        for (i : 0 .. STREAMS - 1) { run Stream(i); run Table(i) }
        for (i : 0 .. CLIENTS - 1) { run Client(i) }
    }
}
