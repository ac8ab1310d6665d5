// A small program over weft::cluster for tests: it launches, joins or listens, and its job runs the
// phases of a real one.
//
//     cluster_rank launch local=3 timeout=500 load=100 steps=50 ...
//     cluster_rank loop times=10 local=2 ...     (repeatedly in one process)
//     cluster_rank listen 127.0.0.1:0 KEYFILE [jobs=N] [neighbor=NAME@HOST:PORT]
//     cluster_rank join 127.0.0.1:7000 KEYFILE [rank=N] [once=1] [wait=MS]
//     cluster_rank worker --handle HANDLE        (started by the above)
//
// Words of a job: load=MS (duration of loading), deaf=1 (loading does not check the monitor),
// prefill=STEPS, steps=STEPS, differ=RANK (has another model), error=RANK (runs out of memory),
// checksum=1 (on every message), gone=RANK (exits silently), fail_at=PHASE (load, prefill, decode),
// patience=MS (wait for data; default: timeout), window=BYTES (of each link), apart=WHERE (after
// the steps, rank `other` goes elsewhere than the rest, see GoApart), other=RANK, look=MS (time
// that rank 0 takes to examine its cables).
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "base/log.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "support/wait.h"

// Ends at once, as processes without this sanitizer do.
extern "C" const char* __tsan_default_options() {
    return "atexit_sleep_ms=0";
}

// The leak check stops all threads (ptrace(2)) at the end. The SIGCONT by which a rank learns of
// rank 0's death undoes the stop, and the check would wait forever.
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0";
}

namespace {

using weft::Deadline;
using weft::Error;
using weft::ErrorCode;
using weft::Status;
using weft::cluster::Cluster;

using Words = std::map<std::string, std::string>;

Words Parse(const std::string& text) {
    Words words;
    std::istringstream stream(text);
    std::string word;
    while (stream >> word) {
        const size_t equals = word.find('=');
        words[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    return words;
}

int64_t Number(const Words& words, const std::string& key, int64_t otherwise) {
    const auto found = words.find(key);
    return found == words.end() ? otherwise : std::atoll(found->second.c_str());
}

void Say(const std::string& line) {
    const std::string text = line + "\n";
    [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, text.data(), text.size());
}

class Run {
  public:
    explicit Run(Cluster& cluster) : cluster_(cluster), words_(Parse(cluster.job())) {}

    Status All() {
        WEFT_TRY(Load());
        WEFT_TRY(Steps("prefill", Number(words_, "prefill", 0)));
        WEFT_TRY(Steps("decode", Number(words_, "steps", 0)));
        return words_.contains("apart") ? GoApart(words_.at("apart")) : Status();
    }

  private:
    // Tells the test the phase, then causes the job's fault for it.
    Status Enter(const char* phase) {
        cluster_.SetPhase(phase);
        Say(fmt::format("rank {} pid {} at {}", cluster_.rank(), ::getpid(), phase));
        const auto at = words_.find("fail_at");
        if (at == words_.end() || at->second != phase) return {};
        if (Number(words_, "gone", -1) == cluster_.rank()) ::_exit(7);
        if (Number(words_, "error", -1) == cluster_.rank()) {
            return weft::MakeError(ErrorCode::kOutOfMemory, "model: 9 GiB needed, 1 GiB free");
        }
        return {};
    }

    size_t HalfAWindow() const {
        return static_cast<size_t>(Number(words_, "window", 1 << 20)) / 2;
    }

    Status Load() {
        WEFT_TRY(Enter("load"));
        const Deadline end = Deadline::In(Number(words_, "load", 0));
        const bool deaf = Number(words_, "deaf", 0) == 1;
        const auto* monitor = cluster_.monitor();
        const auto failed = [&] { return !deaf && monitor != nullptr && monitor->Failed(); };
        if (weft::test::Until(failed, end)) return monitor->Failure();
        const bool differs = Number(words_, "differ", -1) == cluster_.rank();
        WEFT_TRY(cluster_.Agree("model", differs ? "bbb" : "aaa", Deadline::In(60'000)));
        return cluster_.Barrier("loaded", Deadline::In(60'000));
    }

    Status Steps(const char* phase, int64_t steps) {
        if (steps == 0) return {};
        WEFT_TRY(Enter(phase));
        if (comm_ == nullptr && cluster_.size() > 1) {
            std::vector<int> ranks;
            for (int rank = 0; rank < cluster_.size(); ++rank) ranks.push_back(rank);
            WEFT_ASSIGN(comm_,
                        weft::coll::Comm::Make(cluster_.fabric(), ranks, {0, HalfAWindow(), 0, 4},
                                               Number(words_, "patience", cluster_.timeout_ms())));
        }
        std::vector<float> data(256);
        const int64_t pace_us = Number(words_, "pace_us", 200);
        const weft::test::Pace pace(pace_us);
        for (int64_t step = 0; step < steps && comm_ != nullptr; ++step) {
            std::fill(data.begin(), data.end(), 1.0f);
            WEFT_TRY(comm_->AllReduce(data, {"all_reduce", step, step}));
            if (data[255] != static_cast<float>(cluster_.size())) {
                return weft::MakeError(ErrorCode::kCorrupt, "a sum is wrong");
            }
            ++progress_;
            if (pace_us > 0) pace.Next();
        }
        return {};
    }

    // All ranks run all_reduces, except `other`, which follows `where`.
    Status GoApart(const std::string& where) {
        WEFT_TRY(Enter("apart"));
        const int ranks = cluster_.size();
        const int me = cluster_.rank();
        const bool other = Number(words_, "other", ranks - 1) == me;
        std::vector<int> everyone;
        for (int rank = 0; rank < ranks; ++rank) everyone.push_back(rank);
        WEFT_ASSIGN(const auto second,
                    weft::coll::Comm::Make(cluster_.fabric(), everyone,
                                           {HalfAWindow(), HalfAWindow(), 4, 4},
                                           Number(words_, "patience", cluster_.timeout_ms())));
        std::vector<float> data(256);
        const weft::net::OpTag export_tag{"broadcast", 3, 10};
        if (where == "compute") {  // no fault
            const Deadline end = Deadline::In(Number(words_, "compute_ms", 0));
            while (other && !end.expired()) ++progress_;
        } else if (where == "ring") {  // each rank waits for the next one
            weft::net::OpTag tag{"recv", me, 9};
            return second->Recv(std::as_writable_bytes(std::span(data)), (me + 1) % ranks, tag);
        } else if (other && where == "broadcast") {
            const int root = me == 0 ? 1 : 0;
            return second->Broadcast(std::as_writable_bytes(std::span(data)), root, export_tag);
        } else if (other && where == "call") {
            return cluster_.Barrier("checkpoint", Deadline::In(600'000));
        } else if (other && where == "end") {
            return cluster_.Shutdown(Deadline::In(600'000));
        } else if (other && where == "beside") {  // a separate thread waits for it
            Status status;
            std::thread thread([&] {
                const int root = me == 0 ? 1 : 0;
                status =
                    second->Broadcast(std::as_writable_bytes(std::span(data)), root, export_tag);
            });
            second->SetAwaitsOwn(true, thread.get_id());
            thread.join();
            second->SetAwaitsOwn(false, thread.get_id());
            return status;
        }
        return comm_->AllReduce(data, {"all_reduce", 12, 9});
    }

    Cluster& cluster_;
    Words words_;
    std::unique_ptr<weft::coll::Comm> comm_;
    int64_t progress_ = 0;
};

int Fail(const Error& error, bool report) {
    if (report) Say("error: " + error.message);
    return weft::ExitStatus(error.code);
}

Cluster* g_cluster = nullptr;  // for rank 0's signal handler only
std::atomic<bool> g_interrupted{false};

int Drive(weft::Result<std::unique_ptr<Cluster>> made, bool worker) {
    if (!made.ok()) return Fail(made.error(), !worker);
    Cluster& cluster = **made;
    if (!worker) {
        g_cluster = &cluster;
        std::signal(SIGINT, [](int) { g_cluster->RequestStop(); });
    }
    weft::SetLogRank(cluster.rank());
    Say(fmt::format("rank {} of {} host {} over {} cores {}{}{}", cluster.rank(), cluster.size(),
                    cluster.host(cluster.rank()).name, cluster.fabric().transport,
                    fmt::join(cluster.cores(), ","), cluster.cores_shared() ? " shared" : "",
                    cluster.fabric().checksum ? " with checksums" : ""));
    Run run(cluster);
    Status status = run.All();
    if (status.ok()) status = cluster.Shutdown(Deadline::In(weft::cluster::kShutdownMs));
    if (!worker) std::signal(SIGINT, SIG_DFL);
    if (status.ok()) {
        if (!worker) Say("done");
        return 0;
    }
    const Error error = cluster.ReportFailure(status.error());
    if (worker && error.code == ErrorCode::kCancelled) return 0;
    return Fail(error, cluster.should_report());
}

weft::cluster::ClusterOptions OptionsOf(const Words& words) {
    weft::cluster::ClusterOptions options;
    options.local = static_cast<int>(Number(words, "local", 1));
    options.timeout_ms = Number(words, "timeout", 500);
    options.window_bytes = static_cast<size_t>(Number(words, "window", 1 << 20));
    options.checksum = Number(words, "checksum", 0) == 1;
    if (words.contains("transport")) options.transport = words.at("transport");
    if (words.contains("key")) options.key_file = words.at("key");
    if (words.contains("listen")) options.listen = words.at("listen");
    options.wait_for = static_cast<int>(Number(words, "wait_for", 0));
    options.wait_ms = Number(words, "wait", 0);
    options.stop = &g_interrupted;
    if (const int64_t look_ms = Number(words, "look", 0); look_ms > 0) {
        options.data.neighbours_now = [look_ms] {
            weft::test::Outlast(look_ms);
            return std::string();
        };
    }
    if (words.contains("hosts")) {
        std::istringstream stream(words.at("hosts"));
        std::string host;
        while (std::getline(stream, host, ',')) options.hosts.push_back(host);
    }
    return options;
}

int CountFds() {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

// Runs the same job repeatedly in one process and reports leftovers in it.
int Loop(const std::string& job, int64_t times) {
    const int before = CountFds();
    for (int64_t i = 0; i < times; ++i) {
        auto cluster = Cluster::Launch(OptionsOf(Parse(job)), job);
        if (!cluster.ok()) return Fail(cluster.error(), true);
        Status status = Run(**cluster).All();
        // Every third time it exits without a shutdown.
        if (status.ok() && i % 3 != 2) status = (*cluster)->Shutdown(Deadline::In(2000));
        if (!status.ok()) return Fail((*cluster)->ReportFailure(status.error()), true);
    }
    const bool child = ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
    Say(fmt::format("fds {} more, children {}", CountFds() - before, child ? "left" : "none"));
    return 0;
}

int Join(const std::string& address, const std::string& key_file, const Words& words) {
    auto joiner = weft::cluster::WorkerJoiner::Open({address,
                                                     key_file,
                                                     static_cast<int>(Number(words, "rank", 0)),
                                                     Number(words, "once", 0) == 1,
                                                     Number(words, "wait", 0),
                                                     {"worker"}});
    if (!joiner.ok()) return Fail(joiner.error(), true);
    Say("joining");
    const auto status = (*joiner)->Run();
    return status.ok() ? *status : Fail(status.error(), true);
}

int Listen(const std::string& address, const std::string& key_file, const Words& words) {
    weft::cluster::WorkerListener::Options options{address, key_file, {"worker"}};
    options.jobs = static_cast<int>(Number(words, "jobs", 1));
    if (words.contains("neighbor")) {
        options.neighbors = [word = words.at("neighbor")] {
            const size_t at = word.find('@');
            return std::vector<weft::cluster::NeighborWorker>{
                {word.substr(0, at), {word.substr(at + 1)}}};
        };
    }
    auto listener = weft::cluster::WorkerListener::Open(options);
    if (!listener.ok()) return Fail(listener.error(), true);
    Say(fmt::format("listening on port {}", (*listener)->port()));
    const Status status = (*listener)->Run();
    return status.ok() ? 0 : Fail(status.error(), true);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "worker" && argc >= 4) {
        if (std::getenv("WEFT_STOP_BEFORE_JOIN") != nullptr) std::raise(SIGSTOP);
        return Drive(Cluster::Join(argv[argc - 1]), true);
    }
    std::string job;
    for (int i = 2; i < argc; ++i) job += std::string(argv[i]) + " ";
    if (mode == "listen" && argc >= 4) return Listen(argv[2], argv[3], Parse(job));
    if (mode == "join" && argc >= 4) return Join(argv[2], argv[3], Parse(job));
    if (mode == "loop") return Loop(job, Number(Parse(job), "times", 1));
    if (mode != "launch") return 2;
    // Keeps the interrupt until there is a cluster.
    std::signal(SIGINT, [](int) { g_interrupted = true; });
    return Drive(Cluster::Launch(OptionsOf(Parse(job)), job), false);
}
