// Ranks connect over verbs, exchange some bytes and disconnect, repeatedly:
//
//     connect_rounds RANKS ROUNDS KILLED
//
// Each round makes RANKS * (RANKS - 1) / 2 links. KILLED further rounds run two processes and kill
// one in the middle. The caller counts leftovers (rdma resource show). Exit status 0: every round
// succeeded.
#include <cstdio>
#include <cstdlib>

#include "net/local.h"
#include "support/ranks.h"

namespace {

using weft::Deadline;
using weft::net::Fabric;
using weft::net::OpTag;

constexpr size_t kWindowBytes = 16'384;
const OpTag kTag{"send", 1, 1};

// With every other rank. Empty, or what went wrong.
std::string Exchange(Fabric& fabric) {
    const Deadline deadline = Deadline::In(20'000);
    const std::vector<std::byte> data(8192, static_cast<std::byte>(fabric.rank + 1));
    for (auto& link : fabric.links) {
        if (link == nullptr) continue;
        const weft::Status put = link->Put(0, {}, data, 0, 1, kTag, deadline);
        if (!put.ok()) return put.error().message;
    }
    for (auto& link : fabric.links) {
        if (link == nullptr) continue;
        const weft::Status got = link->Wait(0, 1, kTag, deadline);
        if (!got.ok()) return got.error().message;
        if (link->window()[8191] != static_cast<std::byte>(link->peer().rank + 1)) {
            return "wrong bytes";
        }
    }
    return "";
}

std::string Round(int ranks) {
    auto fabrics = weft::net::MakeLocalFabrics(ranks, weft::net::Transport::kVerbs, kWindowBytes);
    if (!fabrics.ok()) return fabrics.error().message;
    std::vector<std::string> words(static_cast<size_t>(ranks));
    weft::test::OnThreads(*fabrics, [&](Fabric& fabric) {
        words[static_cast<size_t>(fabric.rank)] = Exchange(fabric);
    });
    std::string all;
    for (const std::string& word : words) all += word;
    return all;
}

// Rank 1 is killed while both wait; rank 0 names it.
std::string KilledRound() {
    weft::test::RankProcesses ranks(
        2, weft::net::Transport::kVerbs, kWindowBytes, [](Fabric& fabric) {
            const std::string words = Exchange(fabric);
            if (!words.empty()) return words;
            if (fabric.rank == 1) ::raise(SIGKILL);
            const auto end = fabric.links[1]->Wait(0, 2, kTag, Deadline::In(20'000));
            return end.ok() ? std::string("no error") : end.error().message;
        });
    const std::string words = ranks.Words(0);
    return words.find("rank 1") != std::string::npos ? "" : "a peer was killed: " + words;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: connect_rounds RANKS ROUNDS KILLED\n");
        return 2;
    }
    const int ranks = std::atoi(argv[1]);
    const int rounds = std::atoi(argv[2]);
    const int all = rounds + std::atoi(argv[3]);
    for (int round = 0; round < all; ++round) {
        const std::string wrong = round < rounds ? Round(ranks) : KilledRound();
        if (wrong.empty()) continue;
        std::printf("round %d: %s\n", round, wrong.c_str());
        return 1;
    }
}
