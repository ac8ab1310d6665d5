// A job of N ranks for an external engine: Slurm, Kubernetes, Ray, or plain ssh. Weft writes one
// native file for that engine's own client; it has no scheduler and keeps no process running.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::submit {

enum class Engine { kSlurm, kRay, kKubeRay, kKubernetes, kSsh };
const char* EngineName(Engine engine);  // as in --to: "slurm", "k8s"

// --to slurm | ray[:URL] | kuberay[:NAMESPACE] | k8s[:NAMESPACE] | ssh[:CLUSTER]
struct Target {
    Engine engine = Engine::kSlurm;
    std::string place;  // text after the colon; "": the client's default
};
// Errors: kUsage.
Result<Target> ParseTarget(const std::string& text);

// A volume of pods: --mount CLAIM=/path, secret/NAME=/path or /host/path=/path.
struct Mount {
    std::string source, path;
};

struct JobSpec {
    Target target;
    std::string name;  // letters, digits and '-', at most 40: Kubernetes allows no others
    int nodes = 1;     // one rank each
    std::vector<std::string> command;  // "train", "model.gguf", ...: the words after `weft`
    std::vector<std::string> flags;    // of the command, by Weft's own names: "--port=8080"
    std::string program = "weft";      // name of Weft's program on the nodes
    std::string folder;                // where ranks start; "": the engine's default

    int cpus = 0;                        // per rank; 0: all of a node
    std::string memory;                  // per rank, in the engine's notation: 32Gi, 32G; "": unset
    std::string time;                    // Slurm: 2:00:00
    std::string partition, account;      // Slurm
    std::vector<std::string> native;     // Slurm: further options, "--constraint=ib"
    std::string image = "weft:latest";   // Kubernetes
    std::vector<Mount> mounts;           // Kubernetes
    std::vector<std::string> resources;  // Kubernetes: rdma/hca=1
    std::vector<int64_t> groups;         // Kubernetes: further groups of a pod's processes
    std::string networks;                // Kubernetes: Multus networks of a pod
    std::vector<std::string> environment;   // Kubernetes: NAME=VALUE
    std::vector<std::string> node_labels;   // Kubernetes: KEY=VALUE, of the nodes that fit
    std::vector<std::string> tolerations;   // Kubernetes: KEY[=VALUE][:EFFECT]
    std::vector<std::string> pull_secrets;  // Kubernetes: Secrets with registry credentials
    std::string queue;                      // Kubernetes: queue of Kueue or Volcano
    std::string scheduler;                  // Kubernetes: scheduler of the pods; "": the cluster's
                                            // default
    int replicas = 1;                       // Kubernetes, serve: servers, each on `nodes` nodes
    std::string service = "ClusterIP";      // Kubernetes, serve: type of the Service for clients
    std::string api_keys;                   // Kubernetes, serve: text of a key file (serve/keys.h)
    std::string secret;                     // Kubernetes: existing Secret with the entries key and
                                            // keys; "": write one from `key` and `api_keys`
    std::vector<std::string> hosts;         // ssh: user@host, one per node
    std::string key;                        // shared key of the ranks: 44 characters
    int port = 29'500;                      // of rank 0
    int restarts = 3;                       // after a lost rank or a preemption
};

// Checks a job's fields, for any engine. Errors: kUsage.
Status CheckJob(const JobSpec& job);
// Whether the command is `name` ("serve", "train").
bool IsCommand(const JobSpec& job, std::string_view name);

// A file for the engine's client, and the command that passes the file to the client.
struct NativeFile {
    std::string name;  // "tune.sbatch"
    std::string text;
    std::vector<std::string> client;  // the command; the file's path is its last argument
};

// Errors: kUsage: a field that the engine does not support.
Result<NativeFile> WriteJob(const JobSpec& job);
// One function per engine.
Result<NativeFile> WriteSlurm(const JobSpec& job);
Result<NativeFile> WriteSsh(const JobSpec& job);
Result<NativeFile> WriteKubernetes(const JobSpec& job);
Result<NativeFile> WriteRay(const JobSpec& job);
Result<NativeFile> WriteKubeRay(const JobSpec& job);

}  // namespace weft::submit
