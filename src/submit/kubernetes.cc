// Kubernetes: a JobSet for jobs that end (train, bench, run), a LeaderWorkerSet for `serve`, each
// with the Secret of the ranks' key. YAML rather than JSON, because people read it.
// https://jobset.sigs.k8s.io, https://lws.sigs.k8s.io
#include <fmt/format.h>

#include "submit/job.h"
#include "submit/pods.h"
#include "submit/quote.h"

namespace weft::submit {
namespace {

std::string Metadata(const JobSpec& job, const std::string& name) {
    std::string text = fmt::format("metadata:\n  name: {}\n", YamlText(name));
    if (!job.target.place.empty()) {
        text += fmt::format("  namespace: {}\n", YamlText(job.target.place));
    }
    text += fmt::format("  labels:\n    app.kubernetes.io/managed-by: weft\n    weft.job: {}\n",
                        YamlText(job.name));
    if (IsKueue(job)) {
        text += fmt::format("    kueue.x-k8s.io/queue-name: {}\n", YamlText(job.queue));
    }
    return text;
}

std::string Secret(const JobSpec& job) {
    std::string text = "apiVersion: v1\nkind: Secret\n" + Metadata(job, job.name) +
                       fmt::format("type: Opaque\nstringData:\n  key: {}\n", YamlText(job.key));
    if (!job.api_keys.empty()) text += fmt::format("  keys: {}\n", YamlText(job.api_keys));
    return text + "---\n";
}

// One pod per index, found by the names that the set gives them.
std::string JobSet(const JobSpec& job) {
    std::string text =
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + Metadata(job, job.name);
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
    return text + PodTemplate(job, 12, {environment, "Never", ""});
}

// The set passes each pod its index and the first pod's address (cluster/join/launcher.h).
std::string LeaderWorkerSet(const JobSpec& job) {
    std::string text = "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\n" +
                       Metadata(job, job.name);
    text += fmt::format(
        "spec:\n  replicas: {}\n  leaderWorkerTemplate:\n    size: {}\n"
        "    restartPolicy: RecreateGroupOnPodRestart\n    leaderTemplate:\n",
        job.replicas, job.nodes);
    const std::string port = fmt::format("- {{name: MASTER_PORT, value: \"{}\"}}\n", job.port);
    text += PodTemplate(job, 6, {port, "", "leader"});
    text += "    workerTemplate:\n";
    return text + PodTemplate(job, 6, {port, "", "worker"});
}

// The Service that clients use. The set makes another Service, NAME, through which ranks find each
// other.
std::string ClientService(const JobSpec& job) {
    return "apiVersion: v1\nkind: Service\n" + Metadata(job, job.name + "-http") +
           fmt::format(
               "spec:\n  type: {}\n  selector: {{weft.job: {}, weft.role: leader}}\n"
               "  ports:\n    - {{name: http, port: {}, targetPort: http}}\n---\n",
               job.service, YamlText(job.name), ValueOf(job, "--tls-cert") ? 443 : 80);
}

// A server's command with the flags that pods need. A file of flags (--config) may set some of
// them, and the command line would override it.
JobSpec WithServingFlags(JobSpec job) {
    const auto add = [&](const std::string& flag, const char* value) {
        if (ValueOf(job, flag)) return;
        for (auto* words : {&job.command, &job.flags}) words->push_back(flag + "=" + value);
    };
    if (!job.api_keys.empty() || !job.secret.empty()) add("--api-key-file", "/etc/weft/keys");
    if (ValueOf(job, "--config")) return job;
    add("--host", "0.0.0.0");
    add("--wait", "1h");  // for the other ranks' nodes and images
    add("--drain-delay-ms", "5000");
    return job;
}

}  // namespace

Result<NativeFile> WriteKubernetes(const JobSpec& given) {
    const bool serves = IsCommand(given, "serve");
    const JobSpec job = serves ? WithServingFlags(given) : given;
    WEFT_TRY(CheckPods(job));
    WEFT_TRY(serves ? CheckServingPods(job) : CheckJobPods(job));
    std::string text = "# Made by 'weft submit --to k8s'.\n";
    if (job.secret.empty()) text += Secret(job);
    text += serves ? ClientService(job) + LeaderWorkerSet(job) : JobSet(job);
    return NativeFile{job.name + ".yaml", text, {"kubectl", "create", "-f"}};
}

}  // namespace weft::submit
