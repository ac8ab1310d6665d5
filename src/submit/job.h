// A job of N ranks that an engine of somebody else's is to run: Slurm, Kubernetes, Ray, or plain
// ssh. Weft writes one native file, which that engine's own client takes; it has no scheduler, and
// keeps nothing running.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::submit {

enum class Engine { kSlurm, kRay, kKubeRay, kKubernetes, kSsh };
const char* EngineName(Engine engine);  // as --to has it: "slurm", "k8s"

// --to slurm | ray[:URL] | kuberay[:NAMESPACE] | k8s[:NAMESPACE] | ssh[:CLUSTER]
struct Target {
    Engine engine = Engine::kSlurm;
    std::string place;  // what follows the colon; "": the client's own default
};
// Errors: kUsage.
Result<Target> ParseTarget(const std::string& text);

// Files of the cluster's that pods see: --mount CLAIM=/path or --mount /host/path=/path.
struct Mount {
    std::string source, path;
};

struct JobSpec {
    Target target;
    std::string name;  // letters, digits and '-', at most 40: Kubernetes takes no other
    int nodes = 1;     // a rank each
    std::vector<std::string> command;  // "train", "model.gguf", ...: what follows `weft`
    std::string program = "weft";      // how the nodes call it
    std::string folder;                // where ranks start; "": the engine's own

    int cpus = 0;                        // a rank; 0: all of a node
    std::string memory;                  // a rank, as the engine writes it: 32Gi, 32G; "": not said
    std::string time;                    // Slurm: 2:00:00
    std::string partition, account;      // Slurm
    std::vector<std::string> native;     // Slurm: further options, "--constraint=ib"
    std::string image = "weft:latest";   // Kubernetes
    std::vector<Mount> mounts;           // Kubernetes
    std::vector<std::string> resources;  // Kubernetes: rdma/hca=1
    std::string networks;                // Kubernetes: Multus networks of a pod
    std::string queue;                   // Kubernetes: Kueue's queue, or Volcano's
    std::string scheduler;               // Kubernetes: who places pods; "": the cluster's own
    std::vector<std::string> hosts;      // ssh: user@host, as many as nodes
    std::string key;                     // what ranks prove to each other: 44 characters
    int port = 29'500;                   // where rank 0 is met
    int restarts = 3;                    // after a lost rank, or a preemption
};

// What is wrong with the words of a job, whatever engine it is for. Errors: kUsage.
Status CheckJob(const JobSpec& job);
// Whether the command is `name` ("serve", "train").
bool IsCommand(const JobSpec& job, std::string_view name);

// A file for the engine's client, and what gives it to it.
struct NativeFile {
    std::string name;  // "tune.sbatch"
    std::string text;
    std::vector<std::string> client;  // the command that takes it; the file's path comes last
};

// Errors: kUsage: what the engine has no word for.
Result<NativeFile> WriteJob(const JobSpec& job);
// Each writes one engine's.
Result<NativeFile> WriteSlurm(const JobSpec& job);
Result<NativeFile> WriteSsh(const JobSpec& job);
Result<NativeFile> WriteKubernetes(const JobSpec& job);
Result<NativeFile> WriteRay(const JobSpec& job);
Result<NativeFile> WriteKubeRay(const JobSpec& job);

}  // namespace weft::submit
