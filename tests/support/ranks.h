// Runs a function on every rank of a local mesh, in threads or in forked processes.
//
// Threads suit checks of results (gtest assertions work in them); processes suit faults, since
// they can be killed. RankProcesses reaps its children and kills what is left of them.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "net/local.h"

namespace weft::test {

inline void OnThreads(std::vector<net::Fabric>& fabrics,
                      const std::function<void(net::Fabric&)>& body) {
    std::vector<std::thread> threads;
    for (net::Fabric& fabric : fabrics) threads.emplace_back([&body, &fabric] { body(fabric); });
    for (std::thread& thread : threads) thread.join();
}

// One process a rank; rank r exits with what body returns, and its words come back as text.
class RankProcesses {
  public:
    using Body = std::function<std::string(net::Fabric&)>;

    RankProcesses(int size, net::Transport transport, size_t window_bytes, const Body& body) {
        net::LocalMesh mesh = net::LocalMesh::Make(size, transport, window_bytes).value();
        for (int rank = 0; rank < size; rank++) {
            int ends[2];
            if (::pipe(ends) != 0) std::abort();
            const pid_t pid = ::fork();
            if (pid == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                ::close(ends[0]);
                Child(mesh, rank, ends[1], body);
            }
            ::close(ends[1]);
            pids_.push_back(pid);
            pipes_.push_back(ends[0]);
        }
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

    void Signal(int rank, int signal) { ::kill(pids_[static_cast<size_t>(rank)], signal); }
    // What the rank's body returned; waits until the process has ended.
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
    [[noreturn]] static void Child(net::LocalMesh& mesh, int rank, int out, const Body& body) {
        mesh.DropOthers(rank);
        std::string words;
        {
            Result<net::Fabric> fabric = mesh.Connect(rank, Deadline::In(10'000));
            words = fabric.ok() ? body(*fabric) : "no fabric: " + fabric.error().message;
        }
        if (::write(out, words.data(), words.size()) < 0) ::_exit(9);
        ::_exit(0);
    }

    std::vector<pid_t> pids_;
    std::vector<int> pipes_;
};

}  // namespace weft::test
