#include "cluster/worker/job_kind.h"

#include <csignal>

#include "base/field_codec.h"
#include "cluster/worker/stop_signals.h"

namespace weft::cluster {
namespace {

Result<const JobKind*> NeedJobKind(std::string_view job, JobKinds kinds) {
    if (const JobKind* kind = FindJobKind(job, kinds); kind != nullptr) return kind;
    return MakeError(ErrorCode::kCorrupt,
                     "job from rank 0: its kind is unknown here. Run the same build of Weft on all "
                     "hosts");
}

}  // namespace

const JobKind* FindJobKind(std::string_view job, JobKinds kinds) {
    const std::string name = KindOfMessage(job);
    for (const JobKind* kind : kinds) {
        if (name == kind->name) return kind;
    }
    return nullptr;
}

Status RunJob(Cluster& cluster, JobKinds kinds) {
    const auto kind = NeedJobKind(cluster.job(), kinds);
    if (!kind.ok() || !(*kind)->handles_stops) {
        ::signal(SIGHUP, SIG_IGN);
        ReleaseStops();  // they are ignored now
    }
    const Status status = kind.ok() ? (*kind)->work(cluster) : Status(kind.error());
    if (!status.ok()) return cluster.ReportFailure(status.error());
    return cluster.Shutdown(Deadline::In(kShutdownMs));
}

Status ExamineJob(const JoinRequest& request, JobKinds kinds) {
    WEFT_ASSIGN(const JobKind* kind, NeedJobKind(request.job, kinds));
    return kind->examine == nullptr ? Status() : kind->examine(request);
}

int JobStatus(const Cluster& cluster, JobKinds kinds, const Error& error) {
    const JobKind* kind = FindJobKind(cluster.job(), kinds);
    const bool stopped =
        error.code == ErrorCode::kCancelled && kind != nullptr && kind->stopped_status != 0;
    return stopped ? kind->stopped_status : ExitStatus(error.code);
}

}  // namespace weft::cluster
