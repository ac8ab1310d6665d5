// A pod of a rank, as the manifests of all engines on Kubernetes have it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "submit/job.h"

namespace weft::submit {

struct PodDetails {
    std::string environment;  // lines of a YAML list, "" for none
    std::string restart;      // restartPolicy; "": the set's own
    bool answers_http = false;
};

// `metadata:` and `spec:` below a `template:` line, `indent` blanks in.
std::string PodTemplate(const JobSpec& job, size_t indent, const PodDetails& details);
// Whether Volcano places the pods; else a queue is Kueue's.
bool IsVolcano(const JobSpec& job);
bool IsKueue(const JobSpec& job);
// Errors: kUsage: what Kubernetes would refuse.
Status CheckPods(const JobSpec& job);
// Errors: kUsage: a server whose probes would find nobody, so that its pods were killed.
Status CheckServingPods(const JobSpec& job);
// What a command says behind a flag, the last time it does: `--port 1`, `--port=1`.
std::optional<std::string> ValueOf(const std::vector<std::string>& command, std::string_view flag);
// Whether a pod is given RDMA, for which it locks the memory that it registers.
bool WantsRdma(const JobSpec& job);
// The command of a rank, with the networks that its data take.
std::vector<std::string> PodCommand(const JobSpec& job);
// The line below `annotations:` by which Multus knows a pod's further networks; "" for none.
std::string NetworkAnnotation(const JobSpec& job, const std::string& indent);
// Each line of `lines` with so many blanks before it.
std::string Indented(const std::string& lines, size_t indent);

// "    resources:" and "    volumeMounts:" of a container; volumes of its pod. Each "" for none.
std::string PodResources(const JobSpec& job);
std::string PodMounts(const JobSpec& job);
std::string PodVolumes(const JobSpec& job);

}  // namespace weft::submit
