#include "submit/pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "submit/quote.h"

namespace weft::submit {
namespace {

// Time for a checkpoint after SIGTERM.
constexpr int64_t kLeastGraceSeconds = 120;
// The defaults of `weft serve`.
constexpr const char* kDrainMs = "30000";
constexpr const char* kDrainDelayMs = "0";
// Time between the last answer and the end of all ranks.
constexpr int64_t kEndSeconds = 30;

// The port opens before the model is read, and /live then answers. 20 minutes for the download of a
// model; a minute without an answer restarts a pod.
std::string Probes(const JobSpec& job) {
    const char* scheme = ValueOf(job, "--tls-cert") ? ", scheme: HTTPS" : "";
    return fmt::format(
        "ports:\n  - {{name: http, containerPort: {0}}}\n"
        "startupProbe:\n  httpGet: {{path: /live, port: http{1}}}\n"
        "  periodSeconds: 5\n  timeoutSeconds: 10\n  failureThreshold: 240\n"
        "livenessProbe:\n  httpGet: {{path: /live, port: http{1}}}\n"
        "  timeoutSeconds: 10\n  failureThreshold: 6\n"
        "readinessProbe:\n  httpGet: {{path: /ready, port: http{1}}}\n  timeoutSeconds: 10\n",
        ValueOf(job, "--port").value_or("8080"), scheme);
}

// Both halves pass the "restricted" Pod Security Standard, unless RDMA needs to lock memory: an
// added capability applies only to root's processes.
// https://kubernetes.io/docs/concepts/security/pod-security-standards
std::string PodSecurity(const JobSpec& job) {
    const std::string groups = job.groups.empty() ? ""
                                                  : fmt::format("  supplementalGroups: [{}]\n",
                                                                fmt::join(job.groups, ", "));
    return fmt::format(
        "{}securityContext:\n{}  fsGroup: 65534\n{}  seccompProfile: {{type: RuntimeDefault}}\n",
        WantsRdma(job) ? "# IPC_LOCK and root: the namespace needs the Pod Security level "
                         "\"privileged\".\n"
                       : "",
        WantsRdma(job) ? "  runAsUser: 0\n" : "  runAsNonRoot: true\n  runAsUser: 65534\n", groups);
}

std::string ContainerSecurity(const JobSpec& job) {
    return fmt::format(
        "securityContext:\n  allowPrivilegeEscalation: false\n"
        "  capabilities: {{drop: [ALL]{}}}\n",
        WantsRdma(job) ? ", add: [IPC_LOCK]" : "");
}

std::string Container(const JobSpec& job, const PodDetails& details) {
    const std::vector<std::string> command = PodCommand(job);
    std::string text = fmt::format("- name: weft\n  image: {}\n  command: {}\n",
                                   YamlText(job.image), PodWords(command));
    if (!job.folder.empty()) text += fmt::format("  workingDir: {}\n", YamlText(job.folder));
    text += "  env:\n    - {name: WEFT_KEY_FILE, value: /etc/weft/key}\n" +
            Indented(details.environment + PodEnvironment(job), 4);
    if (details.role == "leader") text += Indented(Probes(job), 2);
    text += Indented(PodResources(job) + ContainerSecurity(job), 2);
    return text +
           "  volumeMounts:\n    - {name: shm, mountPath: /dev/shm}\n"
           "    - {name: key, mountPath: /etc/weft, readOnly: true}\n" +
           Indented(PodMounts(job), 4);
}

std::string Volumes(const JobSpec& job) {
    return fmt::format(
               "volumes:\n  - {{name: shm, emptyDir: {{medium: Memory}}}}\n"
               "  - {{name: key, secret: {{secretName: {}, defaultMode: 0440}}}}\n",
               YamlText(job.secret.empty() ? job.name : job.secret)) +
           Indented(PodVolumes(job), 2);
}

// One node per rank: two ranks of one node would share its memory. If cores and devices divide a
// node, replicas may share it.
std::string Affinity(const JobSpec& job) {
    const bool divides = job.cpus > 0 && !job.resources.empty();
    return fmt::format(
        "affinity:\n  podAntiAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n"
        "      - topologyKey: kubernetes.io/hostname\n{}"
        "        labelSelector:\n          matchLabels:\n            weft.job: {}\n",
        IsCommand(job, "serve") && divides
            ? "        matchLabelKeys: [leaderworkerset.sigs.k8s.io/group-key]\n"
            : "",
        YamlText(job.name));
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
    if (job.networks.empty() || ValueOf(job, "--data-net")) return command;
    const auto networks = std::ranges::count(job.networks, ',') + 1;
    std::string interfaces;
    for (int i = 1; i <= networks; ++i) {
        interfaces += fmt::format("{}net{}", i == 1 ? "" : ",", i);
    }
    command.push_back("--data-net=" + interfaces);
    return command;
}

int64_t GraceSeconds(const JobSpec& job) {
    if (!IsCommand(job, "serve")) return kLeastGraceSeconds;
    const auto ms = [&](const char* flag, const char* usual) {
        return std::strtoll(ValueOf(job, flag).value_or(usual).c_str(), nullptr, 10);
    };
    const int64_t drain_ms = ms("--drain-delay-ms", kDrainDelayMs) + ms("--drain-ms", kDrainMs);
    return std::max(kLeastGraceSeconds, (drain_ms + 999) / 1000 + kEndSeconds);
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

std::string PodEnvironment(const JobSpec& job) {
    std::string text;
    for (const std::string& variable : job.environment) {
        const size_t equals = variable.find('=');
        text += fmt::format("- {{name: {}, value: {}}}\n", YamlText(variable.substr(0, equals)),
                            PodWord(std::string_view(variable).substr(equals + 1)));
    }
    return text;
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
    return text.empty() ? "" : "resources:\n" + text;
}

std::string PodPlacement(const JobSpec& job) {
    std::string text;
    if (!job.node_labels.empty()) text += "nodeSelector:\n";
    for (const std::string& label : job.node_labels) {
        const size_t equals = label.find('=');
        text += fmt::format("  {}: {}\n", YamlText(label.substr(0, equals)),
                            YamlText(label.substr(equals + 1)));
    }
    if (!job.tolerations.empty()) text += "tolerations:\n";
    for (const std::string& toleration : job.tolerations) {
        const size_t colon = std::min(toleration.rfind(':'), toleration.size());
        const std::string taint = toleration.substr(0, colon);
        const size_t equals = taint.find('=');
        text += fmt::format("  - {{key: {}, operator: {}", YamlText(taint.substr(0, equals)),
                            equals == taint.npos ? "Exists" : "Equal");
        if (equals != taint.npos) text += ", value: " + YamlText(taint.substr(equals + 1));
        if (colon < toleration.size()) text += ", effect: " + toleration.substr(colon + 1);
        text += "}\n";
    }
    if (!job.pull_secrets.empty()) text += "imagePullSecrets:\n";
    for (const std::string& secret : job.pull_secrets) {
        text += fmt::format("  - {{name: {}}}\n", YamlText(secret));
    }
    return text;
}

std::string PodMounts(const JobSpec& job) {
    std::string text;
    for (size_t i = 0; i < job.mounts.size(); ++i) {
        text +=
            fmt::format("- {{name: mount-{}, mountPath: {}}}\n", i, YamlText(job.mounts[i].path));
    }
    return text;
}

std::string PodVolumes(const JobSpec& job) {
    std::string text;
    for (size_t i = 0; i < job.mounts.size(); ++i) {
        const std::string& source = job.mounts[i].source;
        if (source[0] == '/') {
            text += fmt::format(
                "# hostPath: the namespace needs the Pod Security level \"privileged\".\n"
                "- {{name: mount-{}, hostPath: {{path: {}}}}}\n",
                i, YamlText(source));
        } else if (source.starts_with(kSecretMount)) {
            text +=
                fmt::format("- {{name: mount-{}, secret: {{secretName: {}, defaultMode: 0440}}}}\n",
                            i, YamlText(source.substr(kSecretMount.size())));
        } else {
            text += fmt::format("- {{name: mount-{}, persistentVolumeClaim: {{claimName: {}}}}}\n",
                                i, YamlText(source));
        }
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
    std::string text = fmt::format("metadata:\n  labels:\n    weft.job: {}\n", YamlText(job.name));
    if (!details.role.empty()) text += "    weft.role: " + details.role + "\n";
    std::string annotations = NetworkAnnotation(job, "    ");
    if (IsVolcano(job) && !job.queue.empty()) {
        annotations += "    scheduling.volcano.sh/queue-name: " + YamlText(job.queue) + "\n";
    }
    if (!annotations.empty()) text += "  annotations:\n" + annotations;
    std::string spec;
    if (!job.scheduler.empty()) spec += "schedulerName: " + YamlText(job.scheduler) + "\n";
    if (!details.restart.empty()) spec += "restartPolicy: " + details.restart + "\n";
    spec += fmt::format("terminationGracePeriodSeconds: {}\nautomountServiceAccountToken: false\n",
                        GraceSeconds(job));
    spec += PodSecurity(job) + PodPlacement(job) + Affinity(job) + "containers:\n" +
            Indented(Container(job, details), 2) + Volumes(job);
    return Indented(text + "spec:\n" + Indented(spec, 2), indent);
}

}  // namespace weft::submit
