// Kinds of jobs. A worker gets a job as JSON (base/field_codec.h), whose "kind" names a JobKind.
// The program lists all kinds in one table (cli/launch.cc).
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/join/join_check.h"

namespace weft::cluster {

struct JobKind {
    const char* name;      // "kind" in the JSON
    const char* activity;  // text for SetJobKind: "training"
    // Runs a worker's part in the job of `cluster`. RunJob reports an error of `work`, and shuts
    // the cluster down.
    Status (*work)(Cluster& cluster);
    // Whether this host can become a rank of a running job. If null, every host can.
    Status (*examine)(const JoinRequest& request) = nullptr;
    // True: `work` handles the signals that stop a process. False: the worker ignores them, and
    // rank 0 ends the job.
    bool handles_stops = false;
    // The worker's exit status after the user stopped the job; 0: the error's status.
    int stopped_status = 0;
};
using JobKinds = std::span<const JobKind* const>;

// The kind of a job. Returns null if `kinds` does not have it.
const JobKind* FindJobKind(std::string_view job, JobKinds kinds);

// Runs a worker's part in the job of `cluster`, to its end. Errors: the cluster's verdict on the
// job's error (Cluster::ReportFailure); kCorrupt if `kinds` does not have the job's kind.
Status RunJob(Cluster& cluster, JobKinds kinds);

// Whether this host can become a rank of the job. Errors: as of RunJob.
Status ExamineJob(const JoinRequest& request, JobKinds kinds);

// The exit status of a worker after RunJob returned `error`.
int JobStatus(const Cluster& cluster, JobKinds kinds, const Error& error);

}  // namespace weft::cluster
