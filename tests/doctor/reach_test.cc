// Connections between hosts: the ports that a host reaches, and the options that name them.
#include "doctor/reach.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "net/socket.h"

namespace weft::doctor {
namespace {

TEST(DoctorReach, ConnectsToThePortsOfAPeer) {
    const net::Fd peer = net::ListenTcp("127.0.0.2", 0).value();
    const uint16_t port = net::BoundPort(peer.get()).value();
    EXPECT_EQ(ReachPeers({.addresses = {"127.0.0.2"}, .ports = {port}}),
              fmt::format("127.0.0.2 {} open\n", port));
    // This host listens, too, unless the port has a listener: then only others are refused.
    const net::Fd own = net::ListenTcp("127.0.0.1", 0).value();
    const uint16_t refused = net::BoundPort(own.get()).value();
    EXPECT_EQ(ReachPeers({.addresses = {"127.0.0.2"}, .ports = {refused}, .timeout_ms = 300}),
              fmt::format("127.0.0.2 {} refused\n", refused));
}

TEST(DoctorReach, OptionsAreParsed) {
    const ReachOptions options{
        .addresses = {"10.0.0.2", "10.0.0.3"}, .ports = {7000, 40123}, .peers = 2};
    const ReachOptions parsed = ParseReach(ReachText(options));
    EXPECT_EQ(parsed.addresses, options.addresses);
    EXPECT_EQ(parsed.ports, options.ports);
    EXPECT_EQ(parsed.peers, options.peers);
    for (const char* text : {"", "x 1 10.0.0.2", "7000 1 b", "70000 1 10.0.0.2"}) {
        EXPECT_TRUE(ParseReach(text).addresses.empty()) << text;
    }
}

}  // namespace
}  // namespace weft::doctor
