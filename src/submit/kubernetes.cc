// Kubernetes: a JobSet for jobs that end (train, bench, run), a LeaderWorkerSet for `serve`, each
// with the Secret of the ranks' key. YAML rather than JSON, because people read it.
// https://jobset.sigs.k8s.io, https://lws.sigs.k8s.io
#include <fmt/format.h>

#include "base/utf8.h"
#include "submit/job.h"
#include "submit/pods.h"
#include "submit/quote.h"

namespace weft::submit {
namespace {

std::string Metadata(const JobSpec& job, const std::string& indent = "") {
    std::string text = fmt::format("{0}metadata:\n{0}  name: {1}\n", indent, YamlText(job.name));
    if (!job.target.place.empty()) {
        text += fmt::format("{}  namespace: {}\n", indent, YamlText(job.target.place));
    }
    text += fmt::format("{}  labels:\n{}    app.kubernetes.io/managed-by: weft\n", indent, indent);
    if (IsKueue(job)) {
        text += fmt::format("{}    kueue.x-k8s.io/queue-name: {}\n", indent, YamlText(job.queue));
    }
    return text;
}

std::string Secret(const JobSpec& job) {
    return "apiVersion: v1\nkind: Secret\n" + Metadata(job) +
           fmt::format("type: Opaque\nstringData:\n  key: {}\n", YamlText(job.key));
}

// One pod per index, found by the names that the set gives them.
std::string JobSet(const JobSpec& job) {
    std::string text = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + Metadata(job);
    // All pods or none.
    const std::string group =
        IsVolcano(job) ? fmt::format(
                             "        metadata:\n          annotations:\n"
                             "            scheduling.volcano.sh/group-min-member: \"{}\"\n",
                             job.nodes)
                       : "";
    text += fmt::format(
        "spec:\n"
        "{}"
        "  network:\n    enableDNSHostnames: true\n    publishNotReadyAddresses: true\n"
        "  failurePolicy:\n    maxRestarts: {}\n"
        "  replicatedJobs:\n    - name: rank\n      replicas: 1\n      template:\n{}        spec:\n"
        "          parallelism: {}\n          completions: {}\n"
        "          completionMode: Indexed\n          backoffLimit: 0\n          template:\n",
        IsKueue(job) ? "  suspend: true  # Kueue lets it go\n" : "", job.restarts, group, job.nodes,
        job.nodes);
    const std::string environment = fmt::format(
        "- {{name: WORLD_SIZE, value: \"{}\"}}\n"
        "- {{name: MASTER_ADDR, value: \"{}-rank-0-0.{}\"}}\n"
        "- {{name: MASTER_PORT, value: \"{}\"}}\n"
        "- name: WEFT_RESTART\n"  // "" at the first start
        "  valueFrom:\n"
        "    fieldRef: {{fieldPath: \"metadata.labels['jobset.sigs.k8s.io/restart-attempt']\"}}\n"
        "- name: RANK\n"
        "  valueFrom:\n"
        "    fieldRef: {{fieldPath: \"metadata.annotations['batch.kubernetes.io/"
        "job-completion-index']\"}}\n",
        job.nodes, job.name, job.name, job.port);
    return text + PodTemplate(job, 12, {environment, "Never", false});
}

// The set tells each pod its index and the address of the first one (cluster/launcher.h).
std::string LeaderWorkerSet(const JobSpec& job) {
    std::string text =
        "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n" + Metadata(job);
    text += fmt::format(
        "spec:\n  replicas: 1\n  leaderWorkerTemplate:\n    size: {}\n"
        "    restartPolicy: RecreateGroupOnPodRestart\n    leaderTemplate:\n",
        job.nodes);
    const std::string port = fmt::format("- {{name: MASTER_PORT, value: \"{}\"}}\n", job.port);
    text += PodTemplate(job, 6, {port, "", true});
    text += "    workerTemplate:\n";
    return text + PodTemplate(job, 6, {port, "", false});
}

}  // namespace

Result<NativeFile> WriteKubernetes(const JobSpec& job) {
    WEFT_TRY(CheckPods(job));
    if (IsCommand(job, "serve")) WEFT_TRY(CheckServingPods(job));
    std::string text = "# Made by 'weft submit --to k8s'.\n" + Secret(job) + "---\n";
    text += IsCommand(job, "serve") ? LeaderWorkerSet(job) : JobSet(job);
    return NativeFile{job.name + ".yaml", text, {"kubectl", "apply", "-f"}};
}

}  // namespace weft::submit
