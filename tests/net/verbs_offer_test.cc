// The verbs part of an offer: every field arrives, invalid fields are refused, and both ranks
// choose the same transport and report the same reason against verbs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "net/offer.h"

namespace weft::net {
namespace {

VerbsAddress SomeAddress() {
    VerbsAddress address;
    address.mtu = 3;
    address.qpn = 0x1234;
    address.psn = 0xabcdef;
    address.rkey = 0xdeadbeef;
    address.region = 0x7f1234567000;
    address.gid = GidOfAddress("10.0.0.1");
    return address;
}

Offer OfferOf(int from, Transport transport) {
    Offer offer;
    offer.from = from;
    offer.to = 1 - from;
    offer.size = 2;
    offer.window_bytes = size_t{4} << 20;
    offer.transport = transport;
    offer.boot_id = from == 0 ? "boot of a" : "boot of b";
    offer.network = "net:[1]";
    offer.unix_name = from == 0 ? "of a" : "of b";
    offer.verbs = SomeAddress();
    return offer;
}

TEST(VerbsOffer, EveryFieldArrives) {
    Offer offer = OfferOf(0, Transport::kVerbs);
    const Offer read = DecodeOffer(EncodeOffer(offer)).value();
    EXPECT_EQ(offer.verbs, read.verbs);
    EXPECT_EQ(Transport::kVerbs, read.transport);
    offer.verbs.reset();
    offer.verbs_why = std::string(700, 'w');
    const Offer without = DecodeOffer(EncodeOffer(offer)).value();
    EXPECT_FALSE(without.verbs.has_value());
    EXPECT_EQ(offer.verbs_why, without.verbs_why);
    VerbsAddress infiniband = SomeAddress();
    infiniband.infiniband = true;
    infiniband.lid = 17;
    infiniband.gid = {};
    offer.verbs = infiniband;
    EXPECT_EQ(offer.verbs, DecodeOffer(EncodeOffer(offer))->verbs);
}

TEST(VerbsOffer, HasTheBytesOfItsProtocol) {
    const auto hex = [](const Offer& offer) {
        std::string text;
        for (const char byte : EncodeOffer(offer)) {
            text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
        }
        return text;
    };
    Offer offer = OfferOf(1, Transport::kVerbs);
    offer.epoch = 3;
    offer.checksum = true;
    offer.encryption = Encryption::kAlways;
    offer.token.fill(0xaa);
    offer.secret.fill(0xbb);
    offer.tcp_host = std::string(300, 'h');  // cut
    offer.tcp_port = 7001;
    offer.tcp_more = {{"10.0.0.1", 7002}, {"", 7003}};
    offer.mpi_job = "job";
    offer.mpi_rank = 5;
    EXPECT_EQ(
        hex(offer),
        "574f46350100000000000000020000000300000000000000000040000000000003010002aaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb09626f6f"
        "74206f662062076e65743a5b315d046f662062ff686868686868686868686868686868686868686868686868"
        "6868686868686868686868686868686868686868686868686868686868686868686868686868686868686868"
        "6868686868686868686868686868686868686868686868686868686868686868686868686868686868686868"
        "6868686868686868686868686868686868686868686868686868686868686868686868686868686868686868"
        "6868686868686868686868686868686868686868686868686868686868686868686868686868686868686868"
        "6868686868686868686868686868686868686868686868686868686868686868686868686868686868686868"
        "6868686868686868686868591b020831302e302e302e315a1b005b1b010003000034120000efcdab00efbead"
        "de00705634127f000000000000000000000000ffff0a000001036a6f6205000000");
    offer = OfferOf(0, Transport::kAuto);
    offer.verbs.reset();
    offer.verbs_why = "no device";
    offer.hidden = true;
    offer.tcp_more.resize(kMostTcpWays + 1);  // cut
    EXPECT_EQ(
        hex(offer),
        "574f463500000000010000000200000000000000000000000000400000000000000001000000000000000000"
        "0000000000000000000000000000000000000000000000000000000000000000000000000000000009626f6f"
        "74206f662061076e65743a5b315d046f66206100000010000000000000000000000000000000000000000000"
        "0000000000000000000000000000000000000000000000000000000009006e6f206465766963650000000000");
}

TEST(VerbsOffer, WhatNoQueuePairHasIsRefused) {
    for (int what = 0; what < 12; what++) {
        Offer offer = OfferOf(0, Transport::kVerbs);
        VerbsAddress& verbs = *offer.verbs;
        if (what == 0) verbs.mtu = 0;
        if (what == 1) verbs.mtu = 6;
        if (what == 2) verbs.qpn = 0x1000000;
        if (what == 3) verbs.qpn = 1;  // of management
        if (what == 4) verbs.psn = 0x1000000;
        if (what == 5) verbs.region = 0;
        if (what == 6) verbs.region = ~uint64_t{0} - 4096 + 1;  // wraps around
        if (what == 7) verbs.region += 8;
        if (what == 8) verbs.gid = {};
        if (what == 9) verbs.lid = 5;                                 // on Ethernet
        if (what == 10) verbs.infiniband = true;                      // without a LID
        if (what == 11) verbs.infiniband = true, verbs.lid = 0xc001;  // multicast
        const Result<Offer> read = DecodeOffer(EncodeOffer(offer));
        ASSERT_FALSE(read.ok()) << what;
        EXPECT_EQ(ErrorCode::kCorrupt, read.error().code);
    }
}

TEST(VerbsOffer, CutAndFlippedBytesNeverPassAsNonsense) {
    const std::string good = EncodeOffer(OfferOf(0, Transport::kAuto));
    for (size_t length = 0; length < good.size(); length++) {
        EXPECT_FALSE(DecodeOffer(good.substr(0, length)).ok()) << length;
    }
    std::mt19937 random(7);
    for (int i = 0; i < 5000; i++) {
        std::string bad = good;
        for (int k = 0; k < 2; k++) bad[random() % bad.size()] ^= static_cast<char>(random());
        const Result<Offer> offer = DecodeOffer(bad);
        if (!offer.ok()) continue;
        EXPECT_TRUE(!offer->verbs || Plausible(*offer->verbs, offer->window_bytes));
        EXPECT_EQ(bad, EncodeOffer(*offer));
    }
}

TEST(VerbsOffer, AutoChoosesVerbsWhereBothHaveItAndNamesTheReasonOtherwise) {
    Offer mine = OfferOf(0, Transport::kAuto);
    Offer theirs = OfferOf(1, Transport::kAuto);
    EXPECT_EQ(Transport::kVerbs, ChooseTransport(mine, theirs).value());
    EXPECT_EQ("", WhyNotVerbs(mine, theirs));
    theirs.boot_id = mine.boot_id;
    EXPECT_EQ(Transport::kShm, ChooseTransport(mine, theirs).value()) << "one host";
    theirs.boot_id = "boot of b";
    theirs.verbs.reset();
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value());
    EXPECT_EQ(Transport::kTcp, ChooseTransport(theirs, mine).value());
    EXPECT_EQ("rank 1 has no RDMA device", WhyNotVerbs(mine, theirs));
    EXPECT_EQ("rank 1 has no RDMA device", WhyNotVerbs(theirs, mine));
    theirs.verbs_why = "port down";
    EXPECT_EQ("rank 1: port down", WhyNotVerbs(mine, theirs));
    mine.verbs.reset();
    theirs.verbs_why.clear();
    EXPECT_EQ("", WhyNotVerbs(mine, theirs)) << "nobody has a device: nothing to tell";
    // One InfiniBand, one RoCE; one IPv4, one IPv6.
    mine = OfferOf(0, Transport::kAuto);
    theirs = OfferOf(1, Transport::kAuto);
    theirs.verbs->infiniband = true;
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value());
    EXPECT_NE(std::string::npos, WhyNotVerbs(mine, theirs).find("InfiniBand"));
    theirs.verbs->infiniband = false;
    theirs.verbs->gid = GidOfAddress("fe80::1");
    EXPECT_EQ(Transport::kTcp, ChooseTransport(mine, theirs).value());
}

TEST(VerbsOffer, RequestedButUnavailableVerbsIsAnError) {
    Offer mine = OfferOf(0, Transport::kVerbs);
    Offer theirs = OfferOf(1, Transport::kVerbs);
    EXPECT_EQ(Transport::kVerbs, ChooseTransport(mine, theirs).value());
    theirs.boot_id = mine.boot_id;
    EXPECT_EQ(Transport::kVerbs, ChooseTransport(mine, theirs).value()) << "also within a host";
    theirs.verbs.reset();
    theirs.verbs_why = "this process may lock 64 KiB";
    const auto chosen = ChooseTransport(mine, theirs);
    ASSERT_FALSE(chosen.ok());
    EXPECT_EQ("--transport verbs: rank 1: this process may lock 64 KiB", chosen.error().message);
}

}  // namespace
}  // namespace weft::net
