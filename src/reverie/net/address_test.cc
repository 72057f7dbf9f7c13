#include "reverie/net/address.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::string spelled(std::string_view target) {
  const auto parsed = parse_target(target);
  if (!parsed.ok()) return std::string(status_code_name(parsed.status().code()));
  std::string text;
  for (const Endpoint& endpoint : *parsed) text += endpoint.to_string() + " ";
  text.pop_back();
  return text;
}

TEST(Address, AcceptsSeveralSpellings) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"localhost:7000", "localhost:7000"},
      {"10.0.0.5:0", "10.0.0.5:0"},
      {"[::1]:65535", "[::1]:65535"},
      {"dns:///replay.local:80", "replay.local:80"},
      {"dns:replay.local:80", "replay.local:80"},
      {"unix:/run/x.sock", "unix:/run/x.sock"},
      {"unix:///run/x.sock", "unix:/run/x.sock"},
      {"unix:relative.sock", "unix:relative.sock"},
      {"unix:@hidden", "unix:@hidden"},
      {"ipv4:10.0.0.5:1,10.0.0.6:2", "10.0.0.5:1 10.0.0.6:2"},
      {"ipv6:[::1]:1,[fe80::2]:2", "[::1]:1 [fe80::2]:2"},
  };
  for (const auto& [target, endpoints] : table) EXPECT_EQ(spelled(target), endpoints) << target;
}

TEST(Address, RefusesInvalidAddresses) {
  for (const std::string target :
       {"", "localhost", "localhost:", ":7000", "localhost:70000", "localhost:-1", "localhost:1x",
        "::1:7000", "[::1]", "[::1]7000", "unix:", "unix:@", "dns://server/name:80", "ipv4:name:1",
        "ipv4:", "ipv4:1.2.3.4:1,", "ipv6:1.2.3.4:1"}) {
    EXPECT_EQ(spelled(target), "INVALID_ARGUMENT") << target;
  }
  EXPECT_EQ(spelled("unix:/" + std::string(120, 'x')), "INVALID_ARGUMENT");
  EXPECT_EQ(spelled(std::string_view("unix:/a\0b", 9)), "INVALID_ARGUMENT");
}

TEST(Address, AWildcardIsReplacedByTheHostThatAnnouncedIt) {
  EXPECT_EQ(without_wildcard("0.0.0.0:7000", "10.0.0.5"), "10.0.0.5:7000");
  EXPECT_EQ(without_wildcard("[::]:7000", "fe80::1"), "[fe80::1]:7000");
  EXPECT_EQ(without_wildcard("0.0.0.0:7000", "::1"), "[::1]:7000");
  for (const std::string other : {"10.0.0.7:7000", "replay.local:1", "unix:@x", "rubbish"}) {
    EXPECT_EQ(without_wildcard(other, "10.0.0.5"), other);
  }
}

TEST(Address, KnowsWhetherOnlyThisMachineCanReachIt) {
  const std::vector<std::pair<std::string, bool>> table = {
      {"127.0.0.1:1", true},
      {"127.8.9.1:1", true},
      {"[::1]:1", true},
      {"unix:/run/x", true},
      {"unix:@x", true},
      {"[::ffff:127.0.0.1]:1", true},
      {"0.0.0.0:1", false},
      {"10.0.0.5:1", false},
      {"[::]:1", false},
      {"[fe80::1]:1", false},
      {"[::ffff:10.0.0.5]:1", false},
  };
  for (const auto& [address, is_loopback] : table) {
    const auto resolved = resolve(parse_endpoint(address).value(), false);
    ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
    EXPECT_EQ(resolved->front().is_loopback(), is_loopback) << address;
    EXPECT_EQ(is_of_one_host(address), is_loopback) << address;
  }
  EXPECT_TRUE(is_of_one_host("localhost:1"));
  EXPECT_FALSE(is_of_one_host("replay.local:1"));
  EXPECT_FALSE(is_of_one_host("rubbish"));
}

TEST(Address, NumericAddressesAreResolvedWithoutALookup) {
  for (const std::string text : {"127.0.0.1:7000", "[::1]:7000", "unix:/run/x.sock", "unix:@x"}) {
    EXPECT_EQ(resolve(parse_endpoint(text).value(), false)->front().to_string(), text);
  }
  EXPECT_EQ(resolve(parse_endpoint("localhost:7").value(), false)->size(), 2u);
  EXPECT_EQ(resolve(parse_endpoint("replay.local:7").value(), false).status().code(),
            StatusCode::kUnimplemented);
}

TEST(Address, AnUnknownNameIsUnavailable) {
  EXPECT_EQ(resolve(parse_endpoint("no-such-name.invalid:7").value()).status().code(),
            StatusCode::kUnavailable);
}

// Guards of a server, and whether it may listen at other addresses than loopback.
TEST(Address, AServerThatOthersCanReachNeedsAGuard) {
  struct Row {
    DoorGuard guard;
    bool is_allowed_elsewhere;
  };
  const std::vector<Row> table = {
      {{}, false},
      {{.has_token = true}, false},
      {{.has_tls = true}, false},
      {{.has_token = true, .has_tls = true}, true},
      {{.has_tls = true, .has_client_certificates = true}, true},
      {{.is_insecure_allowed = true}, true},
      {{.has_tls = true, .is_insecure_allowed = true}, true},
      {{.has_token = true, .is_insecure_allowed = true}, false},  // the token would be readable
  };
  const SocketAddress here = resolve(parse_endpoint("127.0.0.1:0").value())->front();
  const SocketAddress everywhere = resolve(parse_endpoint("0.0.0.0:0").value())->front();
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(check_bind(here, table[i].guard).ok()) << i;
    EXPECT_EQ(check_bind(everywhere, table[i].guard).ok(), table[i].is_allowed_elsewhere) << i;
  }
}

TEST(SingleTargets, ListEachAddressAndEachServerOnce) {
  using Targets = std::vector<std::string>;
  EXPECT_EQ(single_targets("ipv4:10.0.0.5:1,10.0.0.6:2,10.0.0.5:1").value(),
            (Targets{"10.0.0.5:1", "10.0.0.6:2"}));
  EXPECT_EQ(single_targets("ipv6:[::1]:1,[::2]:1").value(), (Targets{"[::1]:1", "[::2]:1"}));
  EXPECT_EQ(single_targets("dns:///localhost:7").value(), Targets{"localhost:7"})
      << "both of its addresses are ways to one server";
  EXPECT_EQ(single_targets("unix:/run/x.sock").value(), Targets{"unix:/run/x.sock"});
  EXPECT_EQ(single_targets("nonsense").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reverie
