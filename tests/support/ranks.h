// Runs a function on every rank of a local mesh, in threads or in forked processes.
//
// Threads suit tests of results, because gtest assertions work in them. Processes suit tests of
// faults, because they can be killed. RankProcesses reaps its children and kills those that remain.
// Each process makes its own offers, which the parent forwards, because RDMA objects do not survive
// a fork.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/local.h"
#include "net/verbs_device.h"
#include "net/verbs_end.h"
#include "support/limits.h"
#include "support/wait.h"

namespace weft::test {

// Every transport available on this host; verbs only with an RDMA device.
inline std::vector<net::Transport> LocalTransports() {
    std::vector<net::Transport> transports = {net::Transport::kShm, net::Transport::kTcp};
    if (net::VerbsBuilt() && !net::ListRdmaPorts().empty()) {
        transports.push_back(net::Transport::kVerbs);
    }
    return transports;
}

inline void OnThreads(std::vector<net::Fabric>& fabrics,
                      const std::function<void(net::Fabric&)>& body) {
    std::vector<std::thread> threads;
    for (net::Fabric& fabric : fabrics) threads.emplace_back([&body, &fabric] { body(fabric); });
    for (std::thread& thread : threads) thread.join();
}

// A number that this process and those that it forks share.
class SharedCount {
  public:
    SharedCount() {
        void* shared = ::mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) std::abort();
        count_ = new (shared) std::atomic<int64_t>(0);
    }
    ~SharedCount() { ::munmap(count_, sizeof *count_); }
    SharedCount(const SharedCount&) = delete;
    SharedCount& operator=(const SharedCount&) = delete;
    std::atomic<int64_t>& operator*() const { return *count_; }
    // Until it is at least `least`.
    bool Reaches(int64_t least) const {
        return Until([&] { return *count_ >= least; });
    }

  private:
    std::atomic<int64_t>* count_;
};

// One process per rank. Rank r exits with the status of `body`; its text is returned.
class RankProcesses {
  public:
    using Body = std::function<std::string(net::Fabric&)>;

    RankProcesses(int size, net::Transport transport, size_t window_bytes, const Body& body) {
        std::vector<int> to_ranks;
        for (int rank = 0; rank < size; rank++) {
            int up[2];
            int down[2];
            if (::pipe(up) != 0 || ::pipe(down) != 0) std::abort();
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (int fd : pipes_) ::close(fd);
                for (int fd : to_ranks) ::close(fd);
                ::close(up[0]);
                ::close(down[1]);
                Child({rank, size, transport, window_bytes}, down[0], up[1], body);
            }
            ::close(up[1]);
            ::close(down[0]);
            pids_.push_back(pid);
            pipes_.push_back(up[0]);
            to_ranks.push_back(down[1]);
        }
        CarryOffers(to_ranks);
    }
    ~RankProcesses() {
        for (size_t r = 0; r < pids_.size(); r++) {
            if (pids_[r] > 0) {
                ::kill(pids_[r], SIGKILL);
                ::waitpid(pids_[r], nullptr, 0);
            }
            ::close(pipes_[r]);
        }
    }
    RankProcesses(const RankProcesses&) = delete;
    RankProcesses& operator=(const RankProcesses&) = delete;

    pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
    void Signal(int rank, int signal) { ::kill(pids_[static_cast<size_t>(rank)], signal); }
    // Text that the rank's body returned; waits for the end of the process.
    std::string Words(int rank) {
        std::string words;
        char part[512];
        ssize_t got;
        while ((got = ::read(pipes_[static_cast<size_t>(rank)], part, sizeof part)) > 0) {
            words.append(part, static_cast<size_t>(got));
        }
        ::waitpid(pids_[static_cast<size_t>(rank)], nullptr, 0);
        pids_[static_cast<size_t>(rank)] = -1;
        return words;
    }

  private:
    struct Place {
        int rank, size;
        net::Transport transport;
        size_t window_bytes;
    };

    // Writes to a pipe: the length, then the bytes.
    static void WriteText(int fd, const std::string& text) {
        const size_t length = text.size();
        if (::write(fd, &length, sizeof length) != sizeof length ||
            ::write(fd, text.data(), length) != static_cast<ssize_t>(length)) {
            ::_exit(8);
        }
    }
    static std::string ReadText(int fd) {
        size_t length = 0;
        if (::read(fd, &length, sizeof length) != sizeof length) return {};
        std::string text(length, '\0');
        for (size_t have = 0; have < length;) {
            const ssize_t got = ::read(fd, text.data() + have, length - have);
            if (got <= 0) return {};
            have += static_cast<size_t>(got);
        }
        return text;
    }
    // Forwards each rank's offers to their receivers.
    void CarryOffers(const std::vector<int>& to_ranks) {
        std::vector<std::vector<std::string>> offers(pipes_.size());  // [from][to]
        for (size_t from = 0; from < pipes_.size(); from++) {
            for (size_t to = 0; to < pipes_.size(); to++) {
                offers[from].push_back(ReadText(pipes_[from]));
            }
        }
        for (size_t to = 0; to < pipes_.size(); to++) {
            for (size_t from = 0; from < pipes_.size(); from++) {
                WriteText(to_ranks[to], offers[from][to]);
            }
            ::close(to_ranks[to]);
        }
    }

    static Result<net::Fabric> Join(const Place& place, int in, int out) {
        net::FabricOptions options;
        options.rank = place.rank;
        options.size = place.size;
        options.transport = place.transport;
        options.window_bytes = place.window_bytes;
        options.epoch = 1;
        options.listen_host = "127.0.0.1";
        WEFT_ASSIGN(auto builder, net::FabricBuilder::Make(options));
        for (int to = 0; to < place.size; to++) WriteText(out, builder->OfferTo(to));
        std::vector<std::string> offers;
        for (int from = 0; from < place.size; from++) offers.push_back(ReadText(in));
        return builder->Connect(offers, Deadline::In(10'000));
    }

    [[noreturn]] static void Child(const Place& place, int in, int out, const Body& body) {
        std::string words;
        {
            Result<net::Fabric> fabric = Join(place, in, out);
            words = fabric.ok() ? body(*fabric) : "no fabric: " + fabric.error().message;
        }
        if (::write(out, words.data(), words.size()) < 0) ::_exit(9);
        ::_exit(0);
    }

    std::vector<pid_t> pids_;
    std::vector<int> pipes_;
};

}  // namespace weft::test
