// The choice of device, port and GID over invented sysfs trees, and the errors that name a missing
// part.
#include "net/verbs_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace weft::net {
namespace {

namespace fs = std::filesystem;

// A tree of sysfs and dev.
class Tree {
  public:
    HostRoots roots() const { return {dir_.path() + "/sys", dir_.path() + "/dev"}; }
    void Write(const std::string& path, const std::string& text) {
        const fs::path file = fs::path(dir_.path()) / path;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    void Port(const std::string& device, int port, const std::string& layer,
              const std::string& state) {
        Write(Folder(device, port) + "/link_layer", layer);
        Write(Folder(device, port) + "/state", state);
    }
    void AddGid(const std::string& device, int port, int index, const std::string& gid,
                const std::string& type, const std::string& netdev) {
        const std::string name = std::to_string(index);
        Write(Folder(device, port) + "/gids/" + name, gid);
        Write(Folder(device, port) + "/gid_attrs/types/" + name, type);
        Write(Folder(device, port) + "/gid_attrs/ndevs/" + name, netdev);
    }
    std::vector<RdmaPort> Ports() const { return ListRdmaPorts(roots()); }

  private:
    static std::string Folder(const std::string& device, int port) {
        return "sys/class/infiniband/" + device + "/ports/" + std::to_string(port);
    }
    test::TempDir dir_;
};

constexpr const char* kActive = "4: ACTIVE";
constexpr const char* kDown = "1: DOWN";

// Two ports of one card, each with its addresses, as mlx5 shows them; the second's are 10.0.1.x.
struct RoceTree : Tree {
    RoceTree() {
        Add(1, "eth0", "0000:0000:0000:0000:0000:ffff:0a00:0001");
        Add(2, "eth1", "0000:0000:0000:0000:0000:ffff:0a00:0101");
    }
    void Add(int port, const std::string& netdev, const std::string& ip) {
        const std::string local = "fe80:0000:0000:0000:0ac0:ebff:fe00:0001";
        Port("mlx5_0", port, "Ethernet", kActive);
        AddGid("mlx5_0", port, 0, local, "IB/RoCE v1", netdev);
        AddGid("mlx5_0", port, 1, local, "RoCE v2", netdev);
        AddGid("mlx5_0", port, 2, ip, "IB/RoCE v1", netdev);
        AddGid("mlx5_0", port, 3, ip, "RoCE v2", netdev);
        AddGid("mlx5_0", port, 4, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
    }
};

TEST(VerbsDevice, GidsAndAddresses) {
    EXPECT_EQ("10.0.0.1", GidText(GidOfAddress("10.0.0.1")));
    EXPECT_EQ("10.0.0.1", GidText(GidOfAddress("0000:0000:0000:0000:0000:ffff:0a00:0001")));
    EXPECT_EQ("fe80::1", GidText(GidOfAddress("fe80::1%eth0")));
    EXPECT_TRUE(IsIpv4(GidOfAddress("::ffff:10.0.0.1")));
    EXPECT_FALSE(IsIpv4(GidOfAddress("fe80::1")));
    EXPECT_EQ(Gid{}, GidOfAddress("node1"));
    EXPECT_TRUE(IsLoopbackAddress("127.0.0.5"));
    EXPECT_TRUE(IsLoopbackAddress("::1"));
    EXPECT_FALSE(IsLoopbackAddress("10.0.0.1"));
}

TEST(VerbsDevice, RoceIsChosenByTheAddressAndIsV2) {
    const RoceTree tree;
    const auto ports = tree.Ports();
    ASSERT_EQ(2u, ports.size());
    EXPECT_EQ(4u, ports[0].gids.size()) << "zero GIDs are left out";
    for (int port = 1; port <= 2; port++) {
        const std::string address = port == 1 ? "10.0.0.1" : "10.0.1.1";
        const Result<RdmaPath> path = ChooseRdmaPath(ports, {}, {"", -1, address});
        ASSERT_TRUE(path.ok()) << path.error().message;
        EXPECT_EQ("mlx5_0", path->device);
        EXPECT_EQ(port, path->port);
        EXPECT_EQ(3, path->gid_index);
        EXPECT_EQ(address, GidText(path->gid));
        EXPECT_FALSE(path->infiniband);
    }
    const Result<RdmaPath> six = ChooseRdmaPath(ports, {}, {"", -1, "fe80::ac0:ebff:fe00:1%eth0"});
    ASSERT_TRUE(six.ok());
    EXPECT_EQ(1, six->gid_index);
}

TEST(VerbsDevice, FlagsOverrideAndWrongOnesAreNamed) {
    const RoceTree tree;
    const auto ports = tree.Ports();
    EXPECT_EQ(2, ChooseRdmaPath(ports, {}, {"mlx5_0:2", -1, "192.168.1.7"})->port);
    EXPECT_EQ(3, ChooseRdmaPath(ports, {}, {"mlx5_0:2", -1, "192.168.1.7"})->gid_index);
    EXPECT_EQ(1, ChooseRdmaPath(ports, {}, {"mlx5_0", 1, ""})->gid_index);
    const auto words = [&](const RdmaSetting& wish) {
        const Result<RdmaPath> path = ChooseRdmaPath(ports, {}, wish);
        return path.ok() ? std::string("chosen") : path.error().message;
    };
    EXPECT_EQ(
        "--rdma-device mlx4_0: no such device or port. This host has: mlx5_0:1 (10.0.0.1), "
        "mlx5_0:2 (10.0.1.1)",
        words({"mlx4_0", -1, ""}));
    EXPECT_NE(std::string::npos, words({"mlx5_0:3", -1, ""}).find("no such device or port"));
    EXPECT_NE(std::string::npos, words({"mlx5_0:x", -1, ""}).find("expected DEVICE or"));
    EXPECT_NE(std::string::npos, words({"mlx5_0", 2, ""}).find("not of type RoCE v2"));
    EXPECT_NE(std::string::npos, words({"mlx5_0", 9, ""}).find("has no GID there"));
    // The management port's address: no RDMA port has it.
    const Result<RdmaPath> other =
        ChooseRdmaPath(ports, {{"192.168.1.7", "eno1"}}, {"", -1, "192.168.1.7"});
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(0u, other.error().message.find(
                      "the peers reach this host at 192.168.1.7 (interface "
                      "eno1), but no RDMA port has that address. RDMA ports: mlx5_0:1"))
        << other.error().message;
}

TEST(VerbsDevice, WithinOneHostTheFirstActivePortIsTaken) {
    RoceTree tree;
    tree.Port("mlx5_0", 1, "Ethernet", kDown);
    const auto ports = tree.Ports();
    EXPECT_EQ(2, ChooseRdmaPath(ports, {}, {"", -1, "127.0.0.1"})->port);
    EXPECT_EQ(2, ChooseRdmaPath(ports, {}, {"mlx5_0", -1, ""})->port);
    const Result<RdmaPath> down = ChooseRdmaPath(ports, {}, {"", -1, "10.0.0.1"});
    ASSERT_FALSE(down.ok());
    EXPECT_NE(std::string::npos, down.error().message.find("mlx5_0:1 is not active (state '1: DOW"))
        << down.error().message;
}

TEST(VerbsDevice, AGidTableWithoutRoceV2IsNamed) {
    Tree tree;
    tree.Port("mlx4_0", 1, "Ethernet", kActive);
    tree.AddGid("mlx4_0", 1, 0, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0");
    const Result<RdmaPath> path = ChooseRdmaPath(tree.Ports(), {}, {"mlx4_0", -1, "10.0.0.1"});
    ASSERT_FALSE(path.ok());
    EXPECT_NE(std::string::npos, path.error().message.find("no GID of type RoCE v2"));
}

// A queue pair's index of a GID has 8 bits: index 300 would mean entry 44, another address.
TEST(VerbsDevice, AGidThatNoQueuePairCanNameIsNotTaken) {
    Tree tree;
    tree.Port("mlx5_0", 1, "Ethernet", kActive);
    for (int index = 44; index <= 300; index += 32) {
        const std::string gid = fmt::format("0000:0000:0000:0000:0000:ffff:0a00:{:04x}", index);
        tree.AddGid("mlx5_0", 1, index, gid, "RoCE v2", "eth0");
    }
    EXPECT_EQ(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.236"})->gid_index, 236);
    EXPECT_EQ(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.1.44"}).error().code,
              ErrorCode::kNotFound);
    EXPECT_EQ(ChooseRdmaPath(tree.Ports(), {}, {"mlx5_0", 300, ""}).error().code,
              ErrorCode::kUsage);
}

// Modules for RDMA over USB4: the port's own properties decide, not a list of names or link layers.
TEST(VerbsDevice, APortOfAnotherLinkLayerIsTriedByWhatItReports) {
    const std::string local = "fe80:0000:0000:0000:0ac0:ebff:fe00:0001";
    for (const std::string layer : {"Thunderbolt", "Unknown", ""}) {
        Tree tree;
        tree.Port("cable0", 1, layer, kActive);
        EXPECT_FALSE(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.1"}).ok()) << layer;
        tree.Write("sys/class/infiniband/cable0/ports/1/lid", "0x7");
        EXPECT_TRUE(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.1"})->infiniband);
        tree.AddGid("cable0", 1, 0, local, "", "");
        const Result<RdmaPath> any = ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.1"});
        ASSERT_TRUE(any.ok()) << any.error().message;
        EXPECT_FALSE(any->infiniband);
        EXPECT_EQ(any->gid_index, 0);
        tree.AddGid("cable0", 1, 1, local, "RoCE v2", "");
        EXPECT_EQ(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.1"})->gid_index, 1);
        tree.Port("cable0", 1, layer, kDown);
        EXPECT_FALSE(ChooseRdmaPath(tree.Ports(), {}, {"", -1, "10.0.0.1"}).ok()) << layer;
    }
}

TEST(VerbsDevice, InfiniBandIsFoundByItsIpoibInterfaceOrAlone) {
    Tree tree;
    const std::string gid = "fe80:0000:0000:0000:0002:c903:0000:1491";
    for (int port = 1; port <= 2; port++) {
        tree.Port("mlx4_0", port, "InfiniBand", kActive);
        tree.AddGid("mlx4_0", port, 0, gid, "IB/RoCE v1", "");
    }
    tree.Write("sys/class/infiniband/mlx4_0/device/net/ib0/dev_port", "0");
    tree.Write("sys/class/infiniband/mlx4_0/device/net/ib1/dev_port", "1");
    const std::vector<LocalAddress> addresses = {{"10.1.0.1", "ib1"}, {"192.168.1.7", "eno1"}};
    const Result<RdmaPath> path = ChooseRdmaPath(tree.Ports(), addresses, {"", -1, "10.1.0.1"});
    ASSERT_TRUE(path.ok()) << path.error().message;
    EXPECT_EQ(2, path->port);
    EXPECT_TRUE(path->infiniband);
    EXPECT_EQ(0, path->gid_index);
    EXPECT_FALSE(ChooseRdmaPath(tree.Ports(), addresses, {"", -1, "192.168.1.7"}).ok()) << "two";
    tree.Port("mlx4_0", 1, "InfiniBand", "2: INIT");
    const Result<RdmaPath> only = ChooseRdmaPath(tree.Ports(), addresses, {"", -1, "192.168.1.7"});
    ASSERT_TRUE(only.ok()) << only.error().message;
    EXPECT_EQ(2, only->port);
    const Result<RdmaPath> init = ChooseRdmaPath(tree.Ports(), {}, {"mlx4_0:1", -1, ""});
    EXPECT_NE(std::string::npos, init.error().message.find("subnet manager")) << "no opensm";
}

TEST(VerbsDevice, WhatTheHostLacksIsNamedEachWithItsNextStep) {
    Tree tree;
    const Status nothing = CheckRdmaHost(tree.Ports(), tree.roots());
    ASSERT_FALSE(nothing.ok());
    EXPECT_NE(std::string::npos, nothing.error().message.find("no RDMA device"));
    EXPECT_NE(std::string::npos, nothing.error().message.find("rdma link add"));
    tree.Port("rxe0", 1, "Ethernet", kActive);
    const Status no_nodes = CheckRdmaHost(tree.Ports(), tree.roots());
    ASSERT_FALSE(no_nodes.ok());
    EXPECT_NE(std::string::npos, no_nodes.error().message.find("/dev/infiniband is missing"));
    EXPECT_NE(std::string::npos, no_nodes.error().message.find("modprobe ib_uverbs"));
    tree.Write("dev/infiniband/uverbs3", "");
    EXPECT_TRUE(CheckRdmaHost(tree.Ports(), tree.roots()).ok());
    const Status no_module = CheckRdmaDevice("rxe0", tree.roots());
    EXPECT_NE(std::string::npos, no_module.error().message.find("has no uverbs node"));
    tree.Write("sys/class/infiniband_verbs/uverbs3/ibdev", "rxe0");
    EXPECT_TRUE(CheckRdmaDevice("rxe0", tree.roots()).ok());
    const std::string node = tree.roots().dev + "/infiniband/uverbs3";
    if (::geteuid() != 0) {  // root may do all
        ::chmod(node.c_str(), 0);
        const Status denied = CheckRdmaDevice("rxe0", tree.roots());
        EXPECT_EQ(ErrorCode::kDenied, denied.error().code);
        EXPECT_NE(std::string::npos, denied.error().message.find("no permission for " + node));
    }
    fs::remove(node);
    const Status gone = CheckRdmaDevice("rxe0", tree.roots());
    EXPECT_NE(std::string::npos, gone.error().message.find("uverbs3 (RDMA device rxe0): No such"))
        << gone.error().message;
}

TEST(VerbsDevice, MemlockIsNamedWithItsLimit) {
    const Error error = RegistrationError(size_t{5} << 20, uint64_t{64} << 10, ENOMEM);
    EXPECT_EQ(ErrorCode::kOutOfMemory, error.code);
    EXPECT_EQ(0u, error.message.find("registering 5120 KiB for RDMA failed: this process may lock "
                                     "64 KiB in memory ('ulimit -l')"))
        << error.message;
    EXPECT_NE(std::string::npos, error.message.find("/etc/security/limits.conf"));
    const Error other = RegistrationError(4096, ~uint64_t{0}, ENOMEM);
    EXPECT_EQ(std::string::npos, other.message.find("ulimit")) << other.message;
}

}  // namespace
}  // namespace weft::net
