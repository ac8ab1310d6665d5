// Rank 0's side of a join request (join_check.h): checks one worker that dialed in, from the first
// request until rank 0 admits or rejects the worker. Meanwhile both send heartbeats, as in a job.
// The running ranks do not wait for the worker. Thread: one at a time (DialIn holds its lock).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/channel.h"
#include "cluster/join/join_check.h"

namespace weft::cluster {

class CandidateCheck {
  public:
    // timeout_ms: silence after which the worker counts as lost.
    CandidateCheck(Channel channel, int64_t timeout_ms);

    // Sends the request, unless it equals the last one. reach: as in ExamineMessage.
    void Ask(const JoinRequest& request, const std::vector<std::string>& reach = {});
    // Reads what has arrived, sends a heartbeat if one is due, and checks the timeout. Call it
    // often.
    void Turn();
    // Whether the worker passed the last request.
    bool fit() const { return fit_; }
    // Whether the answer takes so long (for example, because of a slow disk) that other workers
    // should join without this one.
    bool slow() const {
        return IsRequested() && !fit_ &&
               NowNs() - requested_ns_ > kSlowTimeouts * timeout_ms_ * kNsPerMs;
    }
    // Why the worker can't join; nullopt: it may. The text follows "b (10.0.0.2:51840) can't join:
    // " in messages.
    const std::optional<Error>& fault() const { return fault_; }
    // When the worker, whose answer is due, last made progress (NowNs); 0: never.
    int64_t moved_ns() const { return IsRequested() && !fit_ ? moved_ns_ : 0; }
    // Sends the rejection to the worker, if it is still connected. The worker then ends the process
    // that wanted to join.
    void SendAway(const Error& why);
    // Returns the connection, when the worker becomes a rank. Do not use this object afterwards.
    Channel::Taken Take() { return channel_.Take(); }

  private:
    static constexpr int64_t kSlowTimeouts = 3;

    bool IsRequested() const { return asked_.number > 0; }
    void OnFrame(FrameType type, View payload);
    void OnAnswer(const ExaminedMessage& answer);
    void Blame(ErrorCode code, std::string why);

    Channel channel_;
    int64_t timeout_ms_;
    int64_t requested_ns_ = 0, heard_ns_ = 0, beat_ns_ = 0, moved_ns_ = 0;
    int64_t progress_ = 0;  // in the worker's last heartbeat
    ExamineMessage asked_{.number = 0};
    bool fit_ = false;
    std::optional<Error> fault_;
};

}  // namespace weft::cluster
