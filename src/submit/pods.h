// The pod of a rank, in the manifests of all Kubernetes engines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "submit/job.h"

namespace weft::submit {

// Source of a --mount that is a Secret: secret/NAME.
inline constexpr std::string_view kSecretMount = "secret/";

struct PodDetails {
    std::string environment;  // lines of a YAML list; "": none
    std::string restart;      // restartPolicy; "": the default of the pod's controller
    std::string role;         // "leader": the rank that answers HTTP; "worker"; "": a job
};

// `metadata:` and `spec:` below a `template:` line, with `indent` spaces.
std::string PodTemplate(const JobSpec& job, size_t indent, const PodDetails& details);
// IsVolcano: Volcano places the pods. IsKueue: the job has a queue of Kueue.
bool IsVolcano(const JobSpec& job);
bool IsKueue(const JobSpec& job);
// Errors: kUsage: a field that Kubernetes would reject.
Status CheckPods(const JobSpec& job);
// Errors: kUsage: clients or the pods' probes could not reach the server; a time is not a number.
Status CheckServingPods(const JobSpec& job);
// Errors: kUsage: a flag that only servers have.
Status CheckJobPods(const JobSpec& job);
// The last value of a flag of the command; "" of a flag without a value.
std::optional<std::string> ValueOf(const JobSpec& job, std::string_view flag);
// Whether the job's resources include RDMA. Pods may then lock memory, as RDMA registration needs.
bool WantsRdma(const JobSpec& job);
// The command of a rank. If the job has networks, adds --data-net with their interfaces.
std::vector<std::string> PodCommand(const JobSpec& job);
// Seconds between SIGTERM and SIGKILL.
int64_t GraceSeconds(const JobSpec& job);
// The line below `annotations:` that names a pod's further networks for Multus; "": none.
std::string NetworkAnnotation(const JobSpec& job, const std::string& indent);
// Puts `indent` spaces before each line.
std::string Indented(const std::string& lines, size_t indent);

// `env:` entries of --env; `resources:` of a container; nodeSelector, tolerations and
// imagePullSecrets of a pod. "": none.
std::string PodEnvironment(const JobSpec& job);
std::string PodResources(const JobSpec& job);
std::string PodPlacement(const JobSpec& job);
// The entries of --mount below `volumeMounts:` and `volumes:`.
std::string PodMounts(const JobSpec& job);
std::string PodVolumes(const JobSpec& job);

}  // namespace weft::submit
