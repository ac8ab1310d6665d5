// Rewards from a program of the user: one or more long-lived processes of one shell command.
//
// Each process reads JSON lines from its standard input and writes one line for each to its
// standard output, in order: a number, null (no reward), or an object with `reward`. It gets all
// lines of an update at once, and may write its answers at any time within the deadline. Its
// standard error is this process's standard error. A process that ends is started again once per
// update, and gets its lines again.
//
// This process must ignore SIGPIPE, as training does (train/stop.h).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/result.h"

namespace weft::train {

// Rewards are finite numbers of float32, as in TRL: sums of larger ones overflow.
inline constexpr double kMostReward = std::numeric_limits<float>::max();

class RewardCommand {
  public:
    // timeout_s: of each Score. ends: the error of a job that ends meanwhile, else OK; cheap,
    // called some times a second. May be empty.
    using Ends = std::function<Status()>;
    RewardCommand(std::string command, int64_t workers, int64_t timeout_s, Ends ends = {});
    ~RewardCommand();  // ends the processes
    RewardCommand(const RewardCommand&) = delete;
    RewardCommand& operator=(const RewardCommand&) = delete;

    // The reward of each line; not a number: none. lines: JSON without a line break. Errors: kIo (a
    // process cannot be started, or ended), kTimeout, kCorrupt (an answer is no reward, or there
    // are too many); the message names the command; errors of `ends`. After an error, the processes
    // have ended.
    Result<std::vector<double>> Score(std::span<const std::string> lines);

  private:
    // One process, and its share of the lines.
    struct Worker {
        pid_t pid = -1;
        Fd input, output;  // of the process
        std::string to, from;
        size_t sent = 0;
        std::span<const std::string> lines{};
        std::span<double> rewards{};
        size_t answered = 0;
        bool restarted = false;
        bool done() const { return answered == lines.size(); }
    };
    Status ScoreAll();
    Status CheckSilent(Worker& worker) const;
    Error NoCompletion(std::string_view written) const;
    Status Start(Worker& worker) const;
    Status Write(Worker& worker) const;
    Status Read(Worker& worker) const;
    Status TakeAnswers(Worker& worker) const;
    Status Ended(Worker& worker) const;
    static void Stop(Worker& worker);
    std::string Name() const;

    const std::string command_;
    const int64_t timeout_s_;
    const Ends ends_;
    std::vector<Worker> workers_;
};

}  // namespace weft::train
