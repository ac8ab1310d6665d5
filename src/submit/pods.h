// A pod of a rank, as the manifests of all engines on Kubernetes have it.
#pragma once

#include <string>

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
// Errors: kUsage: what no manifest can say.
Status CheckPods(const JobSpec& job);
// Each line of `lines` with so many blanks before it.
std::string Indented(const std::string& lines, size_t indent);

// "    resources:" and "    volumeMounts:" of a container; volumes of its pod. Each "" for none.
std::string PodResources(const JobSpec& job);
std::string PodMounts(const JobSpec& job);
std::string PodVolumes(const JobSpec& job);

}  // namespace weft::submit
