#include "submit/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "submit/quote.h"

namespace weft::submit {
namespace {

std::string Probes(const JobSpec& job) {
    const char* scheme = ValueOf(job.command, "--tls-cert") ? ", scheme: HTTPS" : "";
    return fmt::format(
        "ports:\n  - {{name: http, containerPort: {0}}}\n"
        "livenessProbe:\n  httpGet: {{path: /live, port: http{1}}}\n  initialDelaySeconds: 10\n"
        "readinessProbe:\n  httpGet: {{path: /ready, port: http{1}}}\n  timeoutSeconds: 10\n",
        ValueOf(job.command, "--port").value_or("8080"), scheme);
}

std::string Container(const JobSpec& job, const PodDetails& details) {
    const std::vector<std::string> command = PodCommand(job);
    std::string text = fmt::format("- name: weft\n  image: {}\n  command: {}\n",
                                   YamlText(job.image), PodWords(command));
    if (!job.folder.empty()) text += fmt::format("  workingDir: {}\n", YamlText(job.folder));
    text += "  env:\n    - {name: WEFT_KEY_FILE, value: /etc/weft/key}\n" +
            Indented(details.environment, 4);
    if (details.answers_http) text += Indented(Probes(job), 2);
    return text + Indented(PodResources(job) + PodMounts(job), 2);
}

}  // namespace

bool WantsRdma(const JobSpec& job) {
    return std::ranges::any_of(job.resources, [](const std::string& resource) {
        return resource.find("rdma") != resource.npos || resource.find("hca") != resource.npos;
    });
}

// Multus names a pod's further interfaces net1, net2, ... Data links must use them explicitly,
// because the kernel reports 10 Gbit/s for the pod's first, virtual interface, which then often
// seems faster.
std::vector<std::string> PodCommand(const JobSpec& job) {
    std::vector<std::string> command = {job.program};
    command.insert(command.end(), job.command.begin(), job.command.end());
    if (job.networks.empty() || ValueOf(job.command, "--data-net")) return command;
    const auto networks = std::ranges::count(job.networks, ',') + 1;
    std::string interfaces;
    for (int i = 1; i <= networks; ++i) {
        interfaces += fmt::format("{}net{}", i == 1 ? "" : ",", i);
    }
    command.push_back("--data-net=" + interfaces);
    return command;
}

std::string Indented(const std::string& lines, size_t indent) {
    std::string out;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
        out += std::string(indent, ' ') + line + "\n";
    }
    return out;
}

std::string NetworkAnnotation(const JobSpec& job, const std::string& indent) {
    if (job.networks.empty()) return "";
    return indent + "k8s.v1.cni.cncf.io/networks: " + YamlText(job.networks) + "\n";
}

std::string PodResources(const JobSpec& job) {
    std::string limits, requests;
    if (!job.memory.empty()) {
        limits += fmt::format("    memory: {}\n", YamlText(job.memory));
        requests += limits;
    }
    if (job.cpus > 0) requests += fmt::format("    cpu: \"{}\"\n", job.cpus);
    for (const std::string& resource : job.resources) {
        const size_t equals = resource.rfind('=');
        limits += fmt::format("    {}: {}\n", YamlText(resource.substr(0, equals)),
                              YamlText(resource.substr(equals + 1)));
    }
    std::string text;
    if (!limits.empty()) text += "  limits:\n" + limits;
    if (!requests.empty()) text += "  requests:\n" + requests;
    if (!text.empty()) text = "resources:\n" + text;
    if (WantsRdma(job)) text += "securityContext:\n  capabilities: {add: [IPC_LOCK]}\n";
    return text;
}

std::string PodMounts(const JobSpec& job) {
    std::string text =
        "volumeMounts:\n  - {name: shm, mountPath: /dev/shm}\n"
        "  - {name: key, mountPath: /etc/weft, readOnly: true}\n";
    for (size_t i = 0; i < job.mounts.size(); ++i) {
        text +=
            fmt::format("  - {{name: mount-{}, mountPath: {}}}\n", i, YamlText(job.mounts[i].path));
    }
    return text;
}

std::string PodVolumes(const JobSpec& job) {
    std::string text = fmt::format(
        "volumes:\n  - {{name: shm, emptyDir: {{medium: Memory}}}}\n"
        "  - {{name: key, secret: {{secretName: {}, defaultMode: 0440}}}}\n",
        YamlText(job.name));
    for (size_t i = 0; i < job.mounts.size(); ++i) {
        const std::string& source = job.mounts[i].source;
        text += fmt::format("  - {{name: mount-{}, {}: {{{}: {}}}}}\n", i,
                            source[0] == '/' ? "hostPath" : "persistentVolumeClaim",
                            source[0] == '/' ? "path" : "claimName", YamlText(source));
    }
    return text;
}

bool IsVolcano(const JobSpec& job) {
    return job.scheduler == "volcano";
}

bool IsKueue(const JobSpec& job) {
    return !job.queue.empty() && !IsVolcano(job);
}

std::string PodTemplate(const JobSpec& job, size_t indent, const PodDetails& details) {
    std::string text;
    text += fmt::format("metadata:\n  labels:\n    weft.job: {}\n", YamlText(job.name));
    std::string annotations = NetworkAnnotation(job, "    ");
    if (IsVolcano(job) && !job.queue.empty()) {
        annotations += "    scheduling.volcano.sh/queue-name: " + YamlText(job.queue) + "\n";
    }
    if (!annotations.empty()) text += "  annotations:\n" + annotations;
    text += "spec:\n";
    if (!job.scheduler.empty()) text += "  schedulerName: " + YamlText(job.scheduler) + "\n";
    if (!details.restart.empty()) text += "  restartPolicy: " + details.restart + "\n";
    // As long as a checkpoint, or running answers, may take.
    text +=
        "  terminationGracePeriodSeconds: 120\n"
        "  securityContext: {runAsUser: @, fsGroup: 65534}\n"
        // One node per rank: two ranks of one node would share its memory.
        "  affinity:\n    podAntiAffinity:\n"
        "      requiredDuringSchedulingIgnoredDuringExecution:\n"
        "        - topologyKey: kubernetes.io/hostname\n"
        "          labelSelector:\n            matchLabels:\n";
    // An added capability applies only to root's processes.
    text.replace(text.find('@'), 1, WantsRdma(job) ? "0" : "65534");
    text += fmt::format("              weft.job: {}\n  containers:\n", YamlText(job.name));
    text += Indented(Container(job, details), 4) + Indented(PodVolumes(job), 2);
    return Indented(text, indent);
}

}  // namespace weft::submit
