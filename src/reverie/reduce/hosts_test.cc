#include "reverie/reduce/hosts.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Hosts, AreNumberedInTheOrderOfTheirFirstMembers) {
  const std::vector<std::string> names = {"b", "b", "a", "b", "c", "a"};
  const Hosts hosts = Hosts::of(names);
  EXPECT_EQ(hosts.numbers(), (std::vector<std::uint32_t>{0, 0, 1, 0, 2, 1}));
  EXPECT_EQ(hosts.count(), 3u);
  EXPECT_EQ(hosts.member_count(), 6u);
  EXPECT_EQ(hosts.largest(), 3u);
  const std::vector<std::size_t> leaders = {hosts.leader_of(0), hosts.leader_of(1),
                                            hosts.leader_of(2)};
  EXPECT_EQ(leaders, (std::vector<std::size_t>{0, 2, 4}));
  for (std::size_t host = 0; host < hosts.count(); ++host) {
    const auto members = hosts.members_of(host);
    for (std::size_t place = 0; place < members.size(); ++place) {
      EXPECT_EQ(hosts.host_of(members[place]), host);
      EXPECT_EQ(hosts.place_of(members[place]), place);
      EXPECT_EQ(hosts.is_leader(members[place]), place == 0);
    }
  }
}

TEST(Hosts, NumbersSurviveARoundTripAndInvalidOnesAreRefused) {
  const Hosts hosts = Hosts::of(std::vector<std::string>{"x", "y", "x"});
  const auto again = Hosts::from_numbers(hosts.numbers());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->numbers(), hosts.numbers());
  for (const auto& wrong : {std::vector<std::uint32_t>{1}, {0, 2}, {0, 1, 3}, {0, 0xffffffffu}}) {
    EXPECT_FALSE(Hosts::from_numbers(wrong).has_value());
  }
}

}  // namespace
}  // namespace reverie
