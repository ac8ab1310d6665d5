#include "cli/command_line/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "backend/device_list.h"
#include "base/log.h"
#include "base/log_format.h"
#include "base/printable.h"
#include "cli/command_line/duration.h"
#include "cli/command_line/output_path.h"
#include "cli/terminal/output.h"
#include "cluster/frame.h"
#include "cluster/join/host_file.h"
#include "cluster/socket.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/sum_wire.h"
#include "engine/rank/trace.h"
#include "fleet/find.h"
#include "model/hyper.h"
#include "model_files/synthetic.h"
#include "net/fabric.h"

namespace weft::cli {
namespace {

constexpr const char* kCluster = "Cluster";
constexpr const char* kEngine = "Engine";
constexpr int kLauncherGraceMs = 200;
constexpr const char* kDeviceVariable = "WEFT_DEVICE";

// --device of inference: a list that starts empty.
void AddDevices(const Command& app, std::string& devices) {
    const Command group = app.Group(kEngine);
    group
        .AddOption(
            "--device", devices,
            fmt::format("Device of all ranks: {}; or one per rank: A,B,C (default: {}, or auto)",
                        backend::kDeviceNames, kDeviceVariable))
        .Valid(backend::CheckDeviceNames);
}

// Sets the default of --device.
Status SetDevices(std::string& devices) {
    if (!devices.empty()) return {};
    const char* own = std::getenv(kDeviceVariable);
    devices = own == nullptr || *own == 0 ? backend::kAutoDevice : own;
    const Status known = backend::CheckDeviceNames(devices);
    if (known.ok()) return {};
    return MakeError(known.error().code, "{}={}: {}", kDeviceVariable, devices.substr(0, 80),
                     known.error().message);
}

// With auto, all ranks choose their devices together.
Status CheckTrainDevices(const std::string& names) {
    WEFT_TRY(backend::CheckDeviceNames(names));
    if (!backend::HasAuto(names) || names == backend::kAutoDevice) return {};
    return MakeError(ErrorCode::kUsage,
                     "'auto' chooses for all ranks: give it alone, or a device for each rank");
}

}  // namespace

std::string ModelHelp() {
    return fmt::format(
        "GGUF file, Hugging Face folder, [hf:]OWNER/NAME[:TYPE] (download with 'weft "
        "pull'), short name (qwen3:8b, qwen3-8b:q8_0) or synthetic:NAME[:dtype] "
        "(random weights of a known shape: {})",
        model_files::Synthetic::Names());
}

void AddModel(const Command& app, std::string& model, bool& pull, bool needed) {
    const Option option = app.AddOption("MODEL", model, ModelHelp());
    if (needed) option.Required();
    app.AddFlag("--pull", pull, "Download the model from the Hub first if the cache lacks it");
    const auto layers = std::make_shared<int>(0);
    app.AddNumber("--layers N", *layers, 1, 4096,
                  "Use only the first N layers of a synthetic model");
    app.Check("--layers", [layers, &model] {
        if (*layers == 0) return "";
        if (!model.starts_with("synthetic:")) return "only a synthetic model can be cut";
        model += fmt::format(":layers={}", *layers);
        return "";
    });
}

Option AddDevice(const Command& app, std::string& device) {
    return app.ShowDefaults()
        .AddOption("--device", device,
                   fmt::format("Device of all ranks: {}", backend::kDeviceNames))
        .Valid(backend::CheckDeviceName);
}

void AddTrainDevices(const Command& app, std::string& devices) {
    const char* own = std::getenv(kDeviceVariable);
    if (own != nullptr && *own != 0) devices = own;
    app.ShowDefaults()
        .AddOption("--device", devices,
                   fmt::format("Device of all ranks: {}; or one per rank: A,B,C. {} in the "
                               "environment sets the default",
                               backend::kDeviceNames, kDeviceVariable))
        .Valid(CheckTrainDevices);
}

void AddJson(const Command& app, bool& json) {
    app.AddFlag("--json", json, "Print the result as JSON");
}

void AddClusterFlags(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kCluster);
    flags.hosts_beyond = true;  // stages need cables only between neighbors
    AddRankFlags(app, flags);
    group.AddOption("--tensor-split", flags.split,
                    "Shares of the ranks or stages, such as 3,2,1; auto: by the measured read "
                    "speed of each rank's device, within its memory");
}

void AddDataPortOptions(const Command& app, cluster::DataPortOptions& data) {
    const Command group = app.Group(kCluster);
    group.AddOption("--data-ports A-B", data.ports,
                    "Port range for data between hosts, as 7001-7010 (default: any)");
    group.AddOption("--advertise ADDR", data.advertise,
                    "Address under which the other hosts reach this host, if the host does not "
                    "know it (NAT, containers)");
    // Data from 'weft up': the hosts that it finds now, and a file with the current list.
    app.AddOption("--neighbours", data.neighbours, "").Group("");
    app.AddOption("--neighbours-file", data.neighbours_file, "").Group("");
}

void AddFoldersOption(const Command& app, std::vector<std::string>& folders) {
    app.AddOption("--folders DIR,...", folders,
                  "Only read and write files of jobs in these folders, as /models,/runs (default: "
                  "any file of this user)")
        .Commas()
        .OneEach();
}

void AddJobsOption(const Command& app, int& jobs) {
    app.ShowDefaults().AddNumber("--jobs N", jobs, 1, static_cast<int>(cluster::kMostJobs),
                                 "Run up to N jobs at the same time, each on its part of the "
                                 "cores; further jobs wait in line");
}

std::vector<std::string> WorkerArguments(const cluster::DataPortOptions& data,
                                         const std::vector<std::string>& folders) {
    std::vector<std::string> words = {"worker"};
    const auto add = [&](const char* flag, const std::string& value) {
        if (!value.empty()) words.insert(words.end(), {flag, value});
    };
    add("--data-ports", data.ports);
    add("--advertise", data.advertise);
    add("--neighbours", data.neighbours);
    add("--folders", fmt::format("{}", fmt::join(folders, ",")));
    return words;
}

namespace {

// Options of the links between the ranks.
void AddLinkFlags(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kCluster);
    group.AddOption("--rdma-device", flags.cluster.rdma_device,
                    "RDMA device of all ranks, such as mlx5_0:1, or one per rank: A,B,C (default: "
                    "the device of the host's address)");
    group.AddNumber(
        "--gid-index", flags.cluster.gid_index, 0, 255,
        "Index in the RDMA port's GID table (default: RoCE v2 with the port's IPv4 address)");
    group.AddOption("--data-net CIDR|IFACE,...", flags.cluster.data_net,
                    "Networks for data links between hosts, as 10.0.1.0/24 or an interface name "
                    "(default: the fastest network that both hosts share)");
    AddDataPortOptions(app, flags.cluster.data);
    group.AddFlag("-v,--verbose", flags.cluster.verbose,
                  "Print which ranks are linked over which network");
    group.AddFlag("--plain-links", flags.cluster.plain_links,
                  "Do not encrypt TCP data links between hosts: the network is trusted");
    group.AddFlag("--checksum", flags.cluster.checksum,
                  "Protect every collective message with a CRC-32C");
    group.AddChoice("--net-table", flags.net_table, {"auto", "off", "remeasure"},
                    "Measured table of the fabric: auto (use the cache or measure), off (use "
                    "built-in values) or remeasure");
}

}  // namespace

void AddRankFlags(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kCluster);
    flags.command = app;
    group.AddNumber(
        "--local", flags.cluster.local, 1, 256,
        "Number of ranks on this machine, up to 256 (default: the product of --tp and --pp)");
    group.AddOption(
        "--hosts", flags.hosts,
        "Workers to use, as host,host or host:port (port 7000); each runs 'weft worker --listen'");
    group.AddOption(
        "--hostfile", flags.hostfile,
        "File with one worker per line; also hostfiles of DeepSpeed and Open MPI ('b slots=1')");
    group.AddOption("--cluster NAME", flags.named_cluster,
                    "Use the hosts of a cluster, each of which runs 'weft up': the hosts in "
                    "~/.config/weft/clusters/NAME.toml, or all hosts that discovery finds");
    group.AddNumber(
        "--expect-workers N", flags.cluster.wait_for, 1, 4095,
        "Wait for N workers that connect to this host (each runs 'weft worker --join THIS_HOST')");
    group.AddOption("--listen HOST:PORT", flags.cluster.listen,
                    "With --expect-workers: address on which to accept workers (default: every "
                    "address, port 7000)");
    group.AddOption("--wait TIME", flags.wait,
                    "Maximum time to wait for the hosts, as 90s or 10m (default: --hosts 3/4 of "
                    "--timeout-ms, --expect-workers 10m; ranks of a launcher wait at least 1m)");
    group.AddOption("--key-file", flags.cluster.key_file,
                    "File with the key that the workers share");
    group.AddNumber("--timeout-ms", flags.cluster.timeout_ms, 200, 3'600'000,
                    "Milliseconds of silence after which a rank counts as lost (5000)");
    AddLinkFlags(app, flags);
}

void AddLayoutFlags(const Command& app, CommonFlags& flags) {
    const Command ranks = app.Group(kCluster), engine = app.Group(kEngine);
    constexpr int kMost = cluster::kMostRanks;
    ranks.AddNumber("--tp", flags.job.tp, 1, kMost,
                    "Tensor-parallel ranks (default: all ranks; with one rank per host, --tp or "
                    "--pp, whichever answers sooner over the measured network)");
    ranks.AddNumber("--ep", flags.job.ep, 1, kMost,
                    "Expert-parallel groups of the tensor ranks; each group holds whole experts "
                    "(default: 1, or as many as the quantization needs)");
    ranks.AddNumber("--pp", flags.job.pp, 1, kMost, "Pipeline stages (default: 1, or as for --tp)");
    ranks.AddChoice("--transport", flags.cluster.transport, net::TransportNames(),
                    "Transport between ranks: auto, shm, tcp, verbs or mpi (auto: shm within a "
                    "host, verbs where both hosts have RDMA, mpi between hosts under mpirun)");
    engine.AddNumber("-t,--threads", flags.job.threads, 1, 1024,
                     "Threads per rank (default: the cores of the rank)");
    engine.AddOption("--trace", flags.trace_file, "Write a timeline for Perfetto to this file");
}

namespace {

// Location of weights: on a GPU, in the host's memory, on the drive.
void AddPlaceFlags(const Command& group, CommonFlags& flags) {
    group
        .AddOption("--experts WHERE", flags.experts,
                   "Where a model's experts are, if its other weights are on a GPU: gpu (default; "
                   "with --device auto, auto if the GPU is too small), cpu (in the host's memory, "
                   "computed by its processor), auto (on the GPU as far as its memory goes, the "
                   "rest as with cpu), cpu:N (cpu for the first N layers), or the GPU's share of "
                   "the layers, as 0.25")
        .Valid(engine::CheckExperts);
    group.AddNumber("--experts-stream-rows N", flags.job.stream_rows, 0, 1 << 20,
                    "Compute the processor's experts on the GPU in steps of N rows or more, which "
                    "read the weights from the host's memory; 0: never (default: measured)");
    group.AddFlag("--cpu-moe", flags.cpu_moe, "As --experts cpu");
    group.AddNumber("--n-cpu-moe N", flags.n_cpu_moe, 0, 1 << 20, "As --experts cpu:N");
    group.AddOption("--override-tensor", flags.override_tensor,
                    "exps=CPU: as --experts cpu; other patterns of llama.cpp are refused");
    group.AddNumber("--gpu-layers N", flags.job.gpu_layers, 0, 1 << 20,
                    "The last N layers are on the GPU; the processor computes the others (default: "
                    "all are on the GPU)");
    group.AddFlag("--weights-on-drive", flags.job.weights_on_drive,
                  "For models with experts that are larger than memory: read experts from the "
                  "model's file when a token needs them, and keep the most used ones in memory");
    group.AddSize("--memory SIZE", flags.job.memory, 0,
                  "With --weights-on-drive: memory of a rank, as 48GiB (default: 90 % of what is "
                  "free, divided by the ranks of the host)");
}

}  // namespace

void AddEngineFlags(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kEngine);
    group
        .AddOption("--ctx", flags.ctx,
                   "Maximum tokens of a sequence, prompt and answer together, as 4096, 8k (8000) "
                   "or 8K (8192), up to the model's trained context including RoPE scaling; 0: "
                   "that context; auto (default): as needed; for serve and conversations: the "
                   "model's context, as far as memory goes")
        .Range(CommonFlags::kAutomaticContext, int64_t{1} << 30)
        .Tokens(CommonFlags::kAutomaticContext);
    group.AddNumber("--prefill-chunk", flags.job.chunk, 1, 65536,
                    "Maximum prompt tokens per step (512)");
    group.AddOption(
        "--kv-dtype", flags.kv,
        "Data type of the KV cache: f16 (default), bf16, f32, q8_0, q5_1 or q4_0; or of "
        "keys and values: q8_0,q4_0");
    flags.job.device.clear();
    AddDevices(app, flags.job.device);
    AddPlaceFlags(group, flags);
    group.AddFlag("--reference", flags.job.reference,
                  "Use reference kernels with float32 activations and KV cache: slow, for checks");
    group.AddFlag("--exact", flags.job.exact,
                  "Keep activations in float32: GPUs skip int8 and f16 products; CPUs use "
                  "reference kernels, which are slow");
    group.AddChoice("--overlap", flags.overlap, {"auto", "off", "on"},
                    "Compute one part of a prompt's rows during the all-reduces of the other "
                    "parts: auto (on slow wires), off or on");
    group.AddChoice(
        "--allreduce-dtype", flags.wire, engine::SumWireNames(),
        "Data type of tensor-parallel all-reduces on the wire: auto (f64; GPUs: f32), f64 (the "
        "same bits for every split), f32, bf16 or q8 (fewer bytes, less exact)");
    group.AddChoice(
        "--prompt-allreduce-dtype", flags.prompt_wire, engine::SumWireNames(),
        "The same for prompts of 128 tokens or more: auto (bf16 between hosts with a slow network, "
        "else as --allreduce-dtype), f64, f32, bf16 (error of a value at most 2^-8 of it, of "
        "logits 0.3 % to 5 %) or q8 (1/254 of the largest of 64; 4 % to 19 %)");
    group.AddChoice("--gpu-allreduce", flags.gpu_sum, {"auto", "split", "spin", "peer"},
                    "How GPUs run all-reduces: auto, split (end a submission for each), spin (wait "
                    "within a submission, in steps of few tokens, if a trial at the start shows "
                    "that the driver can) or peer (through the memory of the GPUs of one host, "
                    "also if that is slower: CUDA and HIP)");
    group.AddNumber("--weights-from", flags.weights_from, 0, 0,
                    "0: only rank 0 reads the model and sends each rank its shard; the other hosts "
                    "need no copy of the file");
    group.AddFlag(
        "--skip-self-test", [&flags] { flags.job.self_test = false; },
        "Skip the start-up test that compares the result of all ranks with the result of one rank");
    group.AddFlag("--verify", flags.job.verify,
                  "Compare checksums of the tensor ranks at every step");
    group.AddFlag("--verify-model", flags.job.verify_model,
                  "Read all bytes of the hosts' copies of the model before the first step, also if "
                  "Weft compared them before, and log the result");
    AddJson(app, flags.json);
}

void AddKeptPages(const Command& app, engine::Job& job) {
    const Command group = app.Group(kEngine);
    constexpr int64_t kMiB = int64_t{1} << 20;
    const Option folder = group.AddOption(
        "--cache-dir FOLDER", job.cache_dir,
        "Keep pages of the KV cache in this folder, on every rank's host, so that a "
        "prompt need not be computed again after a restart; several ranks and servers "
        "may share the folder (default: none)");
    group
        .AddSize("--cache-disk SIZE", job.cache_disk, kMiB,
                 "Maximum size of all pages in --cache-dir; new ones replace those that were not "
                 "used for the longest time (50GB)")
        .Needs(folder);
    group.AddSize("--cache-ram SIZE", job.cache_ram, kMiB,
                  "Keep pages of the KV cache in this much host memory per rank, for prompts whose "
                  "pages are no longer in the KV cache (default: none)");
}

void AddSlots(const Command& app, engine::Job& job) {
    const Command group = app.Group(kEngine);
    const Option folder = group.AddOption(
        "--slot-save-path FOLDER", job.slot_dir,
        "Save and restore conversations by name in this folder, on every rank's host: POST "
        "/slots/ID?action=save or restore, as in llama-server (default: none)");
    group
        .AddSize("--slot-save-size SIZE", job.slot_disk, int64_t{1} << 20,
                 "Maximum size of all files in --slot-save-path; an API key may have half of it "
                 "(50GB)")
        .Needs(folder);
}

void AddLora(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kEngine);
    group.AddOption("--lora DIR", flags.lora,
                    "Folder of a LoRA adapter (adapter_config.json, adapter_model.safetensors) to "
                    "apply beside the unchanged weights");
}

void AddRecoveryFlags(const Command& app, CommonFlags& flags) {
    const Command group = app.Group(kCluster);
    group.AddNumber("--restart-timeout-ms", flags.cluster.rejoin_ms, 0, 3'600'000,
                    "Milliseconds to wait for a lost rank: Weft restarts the rank, or calls its "
                    "host's worker, and the job continues (0: the job ends; serve: 60000 unless "
                    "--max-restarts is 0; --elastic: only if the job needs the rank)");
    group.AddFlag("--elastic", flags.cluster.elastic,
                  "Continue with fewer ranks when a rank is lost and does not return within two "
                  "seconds (local ranks: --restart-timeout-ms), and take in a host of --hosts or "
                  "--cluster that is back, and workers that connect (--expect-workers)");
    group.AddFlag("--new-hosts", flags.new_hosts,
                  "With --elastic and --cluster: also take in hosts of the cluster on which 'weft "
                  "up' starts during the job, or whose worker was busy");
}

void AddDraftFlags(const Command& app, engine::DraftOptions& draft) {
    const Command group = app.Group("Drafts (several tokens a step)");
    group.AddFlag("--prompt-lookup", draft.lookup,
                  "Draft tokens from earlier occurrences in the text: fast if the answer "
                  "quotes or edits its prompt, harmless otherwise");
    group.AddOption(
        "--draft MODEL|mtp", draft.model,
        "Small model with the same vocabulary that drafts tokens on rank 0, which MODEL verifies "
        "in one step; or the folder of an EAGLE-3 or DFlash head for MODEL; or mtp: draft with "
        "MODEL's own multi-token prediction head (DeepSeek V3, GLM 4.5, Qwen3-Next, Qwen 3.5 and "
        "later)");
    group.AddNumber(
        "--draft-tokens K", draft.tokens, 1, engine::kMostDraftTokens,
        "Maximum draft tokens per step (--prompt-lookup: 16, --draft: 8, a head: 4, a DFlash head: "
        "its block); Weft drafts fewer, or none, when drafts are seldom accepted");
    group.AddFlag("--draft-always", draft.always,
                  "Draft --draft-tokens at every step, even if it is slower (for measurements)");
}

namespace {

Status ResolveCluster(CommonFlags& flags) {
    if (!flags.hosts.empty() || !flags.hostfile.empty() || flags.cluster.wait_for > 0 ||
        flags.cluster.local > 1) {
        return MakeError(
            ErrorCode::kUsage,
            "--cluster names the hosts: it excludes --hosts, --hostfile, --expect-workers "
            "and --local");
    }
    WEFT_ASSIGN(
        const fleet::FoundCluster found,
        fleet::FindCluster(flags.named_cluster, flags.cluster.key_file, flags.cluster.wait_ms,
                           flags.needed_hosts, &flags.missing_hosts, flags.hosts_beyond));
    flags.cluster.key_file = found.key_file;
    flags.cluster.host_names.clear();
    flags.cluster.data.neighbours = net::NeighboursText(found.neighbours);
    if (const auto discovery = found.discovery; discovery != nullptr) {
        flags.cluster.addresses_now = [discovery](const std::string& name) {
            return fleet::AddressesOf(name, discovery->Now());
        };
        flags.cluster.data.neighbours_now = [discovery] {
            return net::NeighboursText(fleet::NeighboursOf(discovery->Now()));
        };
    }
    if (flags.new_hosts) {
        if (found.discovery == nullptr) {
            return MakeError(ErrorCode::kUsage,
                             "--new-hosts: the cluster's file gives an address for each of its "
                             "hosts, so no host is searched for. Remove an address from the file");
        }
        flags.cluster.new_hosts = [discovery = found.discovery] {
            return fleet::HostNames(discovery->Now());
        };
    }
    for (const fleet::FoundHost& host : found.hosts) {
        flags.cluster.hosts.push_back(host.address);
        flags.cluster.host_names.push_back(host.name);
        Log(LogLevel::kInfo, "rank {} is {}, {}", flags.cluster.hosts.size(), host.name,
            host.address);
    }
    return {};
}

// The value of --ctx, if given.
Result<int64_t> ContextRequested(const CommonFlags& flags) {
    if (flags.ctx > 0) return flags.ctx;
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    return hyper.context;
}

}  // namespace

Status ResolveHosts(CommonFlags& flags) {
    std::vector<std::string>& hosts = flags.cluster.hosts;
    WEFT_ASSIGN(hosts, cluster::ExpandHosts(flags.hosts, "--hosts: "));
    if (!flags.hostfile.empty()) {
        if (!hosts.empty()) {
            return MakeError(ErrorCode::kUsage, "--hosts and --hostfile exclude each other");
        }
        WEFT_ASSIGN(hosts, cluster::ReadHostFile(flags.hostfile));
    }
    for (std::string& host : hosts) host = cluster::WithWorkerPort(host);
    std::string& listen = flags.cluster.listen;
    if (!listen.empty()) listen = cluster::WithWorkerPort(listen);
    if (!flags.wait.empty()) {
        WEFT_ASSIGN(const double wait_s, ParseTime("--wait", flags.wait));
        flags.cluster.wait_ms = std::max<int64_t>(1, std::llround(wait_s * 1000));
    }
    if (flags.new_hosts && (flags.named_cluster.empty() || !flags.cluster.elastic)) {
        return MakeError(ErrorCode::kUsage, "--new-hosts needs --cluster NAME and --elastic");
    }
    return flags.named_cluster.empty() ? Status() : ResolveCluster(flags);
}

void CatchStop(CommonFlags& flags) {
    // If a launcher ends all ranks after the loss of one, the delay lets rank 0 report the lost
    // rank.
    const bool launched = flags.cluster.launched != nullptr;
    flags.cluster.stop = CatchInterrupts(launched ? kLauncherGraceMs : 0);
}

Status ResolveLocal(CommonFlags& flags, const std::vector<std::pair<const char*, int>>& layout) {
    if (cluster::NamesHosts(flags.cluster) || flags.cluster.launched != nullptr) return {};
    constexpr int64_t kMost = 1 << 20;  // more than any cluster has
    int64_t ranks = 1;
    std::vector<std::string> words;
    for (const auto& [flag, value] : layout) {
        if (value <= 0) continue;
        ranks = std::min(kMost, ranks * value);
        words.push_back(fmt::format("{} {}", flag, value));
    }
    int& local = flags.cluster.local;
    if (local == 1 && !flags.command.Given("--local")) local = static_cast<int>(ranks);
    if (local % ranks == 0) return {};
    return MakeError(ErrorCode::kUsage,
                     "--local {} starts {} rank{}, but {} needs {} or a multiple. Remove --local, "
                     "or change one of them",
                     local, local, local == 1 ? "" : "s", fmt::join(words, " "), ranks);
}

namespace {

// Patterns of -ot that name the experts of all layers.
bool NamesAllExperts(std::string_view pattern) {
    constexpr std::string_view kPatterns[] = {"exps=CPU",
                                              ".*exps=CPU",
                                              "_exps=CPU",
                                              "ffn_.*_exps=CPU",
                                              ".ffn_.*_exps.=CPU",
                                              "\\.ffn_.*_exps\\.=CPU",
                                              "\\.ffn_(up|down|gate)_exps=CPU",
                                              ".ffn_(up|down|gate)_exps.=CPU"};
    return std::ranges::find(kPatterns, pattern) != std::end(kPatterns);
}

// --experts by the flags of llama.cpp.
Status ResolveExperts(CommonFlags& flags) {
    std::vector<std::string> given;
    if (!flags.experts.empty()) given.push_back("--experts");
    const auto take = [&](const char* flag, std::string experts) {
        given.push_back(flag);
        flags.experts = std::move(experts);
    };
    if (flags.cpu_moe) take("--cpu-moe", "cpu");
    if (flags.n_cpu_moe >= 0) take("--n-cpu-moe", fmt::format("cpu:{}", flags.n_cpu_moe));
    if (!flags.override_tensor.empty()) {
        if (!NamesAllExperts(flags.override_tensor)) {
            return MakeError(ErrorCode::kUsage,
                             "--override-tensor {}: only exps=CPU is known. --experts cpu:N leaves "
                             "the experts of the first N layers to the processor, and --gpu-layers "
                             "N all but the last N layers",
                             flags.override_tensor.substr(0, 80));
        }
        take("--override-tensor", "cpu");
    }
    if (!flags.experts.empty()) flags.job.experts = flags.experts;
    if (given.size() < 2) return {};
    return MakeError(ErrorCode::kUsage, "{} and {} both place the experts. Remove one of them",
                     given[0], given[1]);
}

}  // namespace

Status Resolve(CommonFlags& flags) {
    WEFT_TRY(ResolveHosts(flags));
    WEFT_TRY(ResolveExperts(flags));
    WEFT_TRY(SetDevices(flags.job.device));
    WEFT_TRY(ResolveLocal(flags, {{"--tp", flags.job.tp}, {"--pp", flags.job.pp}}));
    flags.job.split_auto = flags.split == "auto";
    if (!flags.job.split_auto) {
        WEFT_ASSIGN(flags.job.split, model::ParseShares(flags.split));
    }
    if (flags.ctx >= 0) {
        WEFT_ASSIGN(flags.job.ctx, ContextRequested(flags));
    }
    WEFT_ASSIGN(flags.job.kv_dtype, engine::ParseKvTypes("--kv-dtype", flags.kv));
    if (!flags.lora.empty()) flags.job.adapters = {{"lora", flags.lora}};
    WEFT_ASSIGN(flags.job.overlap, engine::ParseOverlap(flags.overlap));
    WEFT_ASSIGN(flags.job.wire, engine::ParseSumWire(flags.wire));
    WEFT_ASSIGN(flags.job.prompt_wire, engine::ParseSumWire(flags.prompt_wire));
    WEFT_ASSIGN(flags.job.device_sum, engine::ParseDeviceSum(flags.gpu_sum));
    flags.job.feed = flags.weights_from == 0;
    if (flags.job.feed && flags.job.weights_on_drive) {
        return MakeError(ErrorCode::kUsage,
                         "--weights-on-drive reads the host's own copy of the model, and with "
                         "--weights-from 0 only rank 0 has one. Remove one of the two");
    }
    if (flags.job.memory > 0 && !flags.job.weights_on_drive) {
        return MakeError(ErrorCode::kUsage, "--memory limits --weights-on-drive; add that flag");
    }
    if (flags.job.feed && flags.job.verify_model) {
        return MakeError(ErrorCode::kUsage,
                         "--verify-model compares the hosts' copies of the model, and with "
                         "--weights-from 0 only rank 0 reads a copy. Remove one of the two");
    }
    WEFT_ASSIGN(flags.job.net_table, fabric::ParseNetTable(flags.net_table));
    CatchStop(flags);
    flags.job.trace = !flags.trace_file.empty();
    return CheckOutput({"--trace", flags.trace_file, engine::kTraceBegin},
                       std::array{flags.job.model, flags.lora});
}

int Fail(const Error& error, bool json) {
    if (json) {
        PrintErrorJson({{"error", error.message}, {"exit_status", ExitStatus(error.code)}});
    }
    // (The command stopped because its output has no reader; FinishOutput reports the reason.)
    if (error.code == ErrorCode::kCancelled && OutputFailed()) return ExitStatus(error.code);
    const bool stopped = error.code == ErrorCode::kCancelled;
    if (LogIsJson()) {
        LogLine(stopped ? LogLevel::kInfo : LogLevel::kError, error.message);
        return ExitStatus(error.code);
    }
    const char* kind = stopped ? "" : "error: ";
    WriteErr(fmt::format("weft: {}{}\n", kind, PrintableLines(error.message)), true);
    return ExitStatus(error.code);
}

}  // namespace weft::cli
