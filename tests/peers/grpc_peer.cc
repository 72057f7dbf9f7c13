// One end of a gRPC conversation for tests whose other end is written in Python.
//
//     grpc_peer serve ADDRESS [--token T] [--tls CERT KEY [CLIENT_CA]] [--grace SECONDS]
//         Serves the methods of tests/support/grpc_methods.h, prints its address, then how each
//         call of /t/Never ended. Stops when its input ends.
//     grpc_peer call TARGET METHOD TEXT [--token T] [--tls CA] [--timeout S] [--repeat N]
//         Sends one message and prints what comes back, as "message SIZE TEXT", then the status.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/support/grpc_methods.h"

namespace reverie::test {
namespace {

std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The words behind `option`, up to the next option.
std::vector<std::string> words_of(const std::vector<std::string>& arguments,
                                  const std::string& option) {
  std::vector<std::string> words;
  auto at = std::find(arguments.begin(), arguments.end(), option);
  if (at == arguments.end()) return words;
  for (++at; at != arguments.end() && !at->starts_with("--"); ++at) words.push_back(*at);
  return words;
}

void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

int serve(const std::vector<std::string>& arguments) {
  GrpcServerOptions options;
  if (const auto token = words_of(arguments, "--token"); !token.empty()) options.token = token[0];
  if (const auto tls = words_of(arguments, "--tls"); tls.size() >= 2) {
    options.tls = {file_text(tls[0]), file_text(tls[1]),
                   tls.size() > 2 ? file_text(tls[2]) : std::string()};
  }
  const auto grace = words_of(arguments, "--grace");
  IoThreads io_threads(2);
  GrpcServer server(io_threads, options);
  add_methods(server, [](const Status& why) { print("ended " + why.to_string()); });
  const auto addresses = server.listen({arguments.at(1)});
  if (!addresses.ok()) {
    print(addresses.status().to_string());
    return 1;
  }
  print(addresses->front());
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  server.stop(seconds(grace.empty() ? 0.0 : std::stod(grace[0])));
  print("stopped");
  return 0;
}

int call(const std::vector<std::string>& arguments) {
  GrpcClientOptions options;
  if (const auto token = words_of(arguments, "--token"); !token.empty()) options.token = token[0];
  if (const auto tls = words_of(arguments, "--tls"); !tls.empty()) {
    options.tls.emplace();
    options.tls->authorities = file_text(tls[0]);
  }
  IoThreads io_threads;
  auto client = GrpcClient::open(io_threads, arguments.at(1), options);
  if (!client.ok()) {
    print(client.status().to_string());
    return 1;
  }
  const auto timeout = words_of(arguments, "--timeout");
  const auto repeat = words_of(arguments, "--repeat");
  for (int i = 0; i < (repeat.empty() ? 1 : std::stoi(repeat[0])); ++i) {
    GrpcCallOptions call_options;
    call_options.deadline =
        Clock::system().now() + seconds(timeout.empty() ? 20.0 : std::stod(timeout[0]));
    call_options.metadata = {{"x-text", "a b"}, {"x-bytes-bin", std::string("\0\xff!", 3)}};
    GrpcBlockingStream stream(**client, arguments.at(2), call_options);
    if (stream.write(GrpcPayload::of(arguments.at(3))).ok()) stream.half_close();
    while (const auto message = stream.read()) {
      print(
          format("message {} {}", (*message)->bytes().size(), text_of(**message).substr(0, 4096)));
    }
    print(stream.status().to_string());
  }
  return 0;
}

}  // namespace
}  // namespace reverie::test

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "serve") return reverie::test::serve(arguments);
  if (!arguments.empty() && arguments[0] == "call") return reverie::test::call(arguments);
  std::fputs("usage: grpc_peer serve ADDRESS ... | call TARGET METHOD TEXT ...\n", stderr);
  return 2;
}
