#include "cluster/join/candidate_check.h"

#include <algorithm>
#include <utility>

namespace weft::cluster {
namespace {

// How long a worker may neither compute nor read (base/process_work.h), such as from a disk that
// hangs. It may take hours to read its copy of the model. (A worker that dies is silent.)
constexpr int64_t kMostStillNs = 600'000 * kNsPerMs;

}  // namespace

CandidateCheck::CandidateCheck(Channel channel, int64_t timeout_ms)
    : channel_(std::move(channel)), timeout_ms_(timeout_ms), heard_ns_(NowNs()) {}

void CandidateCheck::Ask(const JoinRequest& request, const std::vector<std::string>& reach) {
    const bool same = asked_.rank == request.rank && asked_.size == request.size &&
                      asked_.job == request.job && asked_.terms == request.terms &&
                      asked_.reach == reach;
    if (same && asked_.number > 0) return;
    asked_ = {asked_.number + 1, request.rank, request.size, request.job, request.terms, reach};
    fit_ = false;
    moved_ns_ = 0;
    requested_ns_ = NowNs();
    channel_.Send(FrameType::kExamine, Encode(asked_));
}

void CandidateCheck::Turn() {
    if (fault_.has_value()) return;
    channel_.Flush();
    const Status status =
        channel_.Receive([&](FrameType type, View payload) { OnFrame(type, payload); });
    if (!status.ok()) Blame(ErrorCode::kPeerLost, status.error().message);
    const int64_t now = NowNs();
    const int64_t silent_ms = (now - heard_ns_) / kNsPerMs;
    if (silent_ms >= timeout_ms_) {
        Blame(ErrorCode::kPeerLost,
              fmt::format("silent for {} ms during the check whether it can be rank {}", silent_ms,
                          asked_.rank));
    }
    if (IsRequested() && !fit_ && now - std::max(requested_ns_, moved_ns_) > kMostStillNs) {
        Blame(
            ErrorCode::kTimeout,
            fmt::format("it neither read nor computed for {} s during the check whether it can be "
                        "rank {}. Does the disk or network file system of its model answer?",
                        kMostStillNs / kNsPerMs / 1000, asked_.rank));
    }
    if (now - beat_ns_ >= std::clamp<int64_t>(timeout_ms_ / 10, 10, 200) * kNsPerMs) {
        beat_ns_ = now;
        channel_.Send(FrameType::kRelay, Encode(RelayMessage{}));
    }
}

void CandidateCheck::OnFrame(FrameType type, View payload) {
    heard_ns_ = NowNs();
    if (type == FrameType::kExamined) {
        const auto answer = Decode<ExaminedMessage>(payload);
        if (answer.ok()) return OnAnswer(*answer);
        return Blame(ErrorCode::kCorrupt, answer.error().message);
    }
    if (type == FrameType::kFailure) {  // the worker leaves, with a reason
        const auto report = Decode<VerdictMessage>(payload);
        if (!report.ok()) return Blame(ErrorCode::kCorrupt, report.error().message);
        return Blame(ErrorCode::kPeerLost, report->reason.empty() ? report->text : report->reason);
    }
    if (type == FrameType::kHeartbeat) {
        const auto beat = Decode<HeartbeatMessage>(payload);
        if (!beat.ok()) return Blame(ErrorCode::kCorrupt, beat.error().message);
        if (std::exchange(progress_, beat->progress) != beat->progress) moved_ns_ = heard_ns_;
        return;
    }
    Blame(
        ErrorCode::kCorrupt,
        fmt::format("it sent a control frame of type {} during the check whether it can be a rank",
                    static_cast<int>(type)));
}

void CandidateCheck::OnAnswer(const ExaminedMessage& answer) {
    if (answer.number > asked_.number || answer.number < 1) {
        return Blame(ErrorCode::kCorrupt, "it sent an answer without a question");
    }
    if (answer.number != asked_.number) return;
    fit_ = answer.fit;
    if (!fit_) Blame(answer.code, answer.why);
}

// The first fault counts. Text from another host goes to this host's terminal.
void CandidateCheck::Blame(ErrorCode code, std::string why) {
    for (char& letter : why) {
        if (static_cast<unsigned char>(letter) < ' ' || letter == 127) letter = ' ';
    }
    fit_ = false;
    if (!fault_.has_value()) fault_ = Error{code, std::move(why)};
}

void CandidateCheck::SendAway(const Error& why) {
    const VerdictMessage verdict{
        why.code, -1, fmt::format("rank 0 does not take this worker into its job: {}", why.message),
        ""};
    channel_.Send(FrameType::kVerdict, Encode(verdict));
    channel_.Close(false);
}

}  // namespace weft::cluster
