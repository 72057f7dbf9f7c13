"""What a source cost is read from ninja's log."""

import compile_cost

_LOG = """# ninja log v5
0\t2500\t1\tCMakeFiles/reverie.dir/src/reverie/replay/table.cc.o\tab
0\t9000\t1\tCMakeFiles/reverie.dir/src/reverie/base/status.cc.o\tab
100\t1100\t2\tCMakeFiles/reverie.dir/src/reverie/base/status.cc.o\tac
2500\t4000\t1\tCMakeFiles/reverie_test.dir/cmake_pch.hxx.gch\tab
4000\t4200\t1\tlibreverie.a\tab
"""


def test_the_most_expensive_targets_and_sources_come_first_without_links():
    assert compile_cost.table(compile_cost.costs(_LOG), count=2) == [
        "     5.0 s  all 3 sources",
        "     3.5 s  reverie: 2 sources",
        "     1.5 s  reverie_test: 1 sources",
        "",
        "     2.5 s  src/reverie/replay/table.cc  (reverie)",
        "     1.5 s  cmake_pch.hxx  (reverie_test)",
    ]
