// Job: all data that a rank needs to run a model. The command line sets the fields; rank 0 sends
// the job to the other ranks as JSON (base/field_codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/communicators.h"
#include "backend/device.h"
#include "base/folder_limit.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "fabric/table.h"
#include "model/builder.h"
#include "model_files/lora/adapted_source.h"
#include "tensor/kv_types.h"

namespace weft::engine {

inline constexpr char kJobKind[] = "model";

struct Job {
    std::string model;          // path or synthetic:NAME[:dtype]; the same text on every host
    int tp = 0, pp = 0;         // 0: chosen by the number of ranks
    int ep = 0;                 // number of groups of tensor ranks, each of which holds whole
                                // experts; 0: depends on the model
    std::vector<double> split;  // shares of the ranks; empty: even
    bool split_auto = false;    // shares are measured at the first start (engine/rank/shares.h)
    int threads = 0;            // per rank; 0: all cores of the rank
    std::string device = backend::kDefaultDevice;  // a name, or a list (backend/device_list.h)
    // Ops that the processor runs beside a GPU (engine/rank/host_ops.h).
    std::string experts;       // as --experts; "": as gpu, but as auto if --device auto finds a GPU
                               // that is too small for the experts
    int64_t gpu_layers = -1;   // the last so many layers run on the GPU; -1: all
    int64_t stream_rows = -1;  // program::HostOps::stream_rows
    // Experts stay on the drive as far as they do not fit into `memory`.
    bool weights_on_drive = false;
    int64_t memory = 0;     // bytes of a rank; 0: most of what is free
    int64_t ctx = 0;        // most tokens of a sequence; 0: the command chooses
    int64_t kv_tokens = 0;  // size of the KV cache in tokens of all sequences together; 0: ctx
    // Not 0: the most of the free memory that the KV cache gets. The ranks then reduce kv_tokens
    // and, with fits_ctx, ctx to what fits (rank/cache_size.h). cache_agreed: the first epoch's
    // ranks have done so; later ones may reduce kv_tokens only.
    double cache_share = 0;
    bool fits_ctx = false, cache_agreed = false;
    int64_t state_slots = 1;  // slots of recurrent state (batch/scheduler.h), for models with such
                              // state
    int64_t chunk = 512;      // most rows of a step
    int64_t max_outputs = 1;  // most output rows of a step: rows whose logits or hidden states are
                              // read
    KvTypes kv_dtype;
    // Outputs of a step on rank 0. With pipeline stages, kBoth means kLogits.
    model::Outputs outputs = model::Outputs::kLogits;
    // Memory for a draft model on rank 0, in addition to the rank's share of the model: weights and
    // activations, and each token of its KV cache.
    int64_t draft_bytes = 0, draft_token_bytes = 0;
    bool draft_head = false;     // use the model's multi-token prediction head, or:
    std::string draft_folder{};  // the word of a separate head's folder; "": none
    bool reference = false;      // reference kernels, float32 KV cache
    bool exact = false;          // do not round activations
    bool trace = false;          // record op timings
    bool power = false;          // read power sensors
    bool self_test = true;    // with several ranks: compare their results before the first request
                              // (self_test.h)
    bool any_device = false;  // the ranks' devices were unlike before a loss: any device may join
    bool warm_up = false;     // run steps before the first request, so that GPUs compile kernels
    bool verify = false;      // compare checksums of replicated values on all ranks at every step
    bool verify_model = false;  // compare the contents of the model's files on all hosts before the
                                // first step (verify_model.h)
    fabric::NetTable net_table = fabric::NetTable::kAuto;
    bool keeps_pages() const { return cache_ram > 0 || !cache_dir.empty() || !slot_dir.empty(); }
    int64_t cache_tokens() const { return kv_tokens > 0 ? kv_tokens : ctx; }
    int64_t step_rows() const { return chunk < cache_tokens() ? chunk : cache_tokens(); }
    backend::Overlap overlap = backend::Overlap::kAuto;
    backend::SumWire wire = backend::SumWire::kAuto;
    backend::SumWire prompt_wire = backend::SumWire::kAuto;  // of rows of prompts
    backend::DeviceSum device_sum = backend::DeviceSum::kAuto;
    // LoRA adapters of the model; their folders must exist on every host. A sequence refers to an
    // adapter by its number, from 1.
    std::vector<model_files::NamedAdapter> adapters{};
    // KV pages kept outside of the device's memory (page_store/rank_pages.h), on every rank: bytes
    // in the host's memory (0: none), and a folder with its limit in bytes ("": none).
    int64_t cache_ram = 0;
    std::string cache_dir{};
    int64_t cache_disk = int64_t{50} << 30;
    // Folder of slot files (page_store/slot_file.h) with its limit in bytes; "": none.
    std::string slot_dir{};
    int64_t slot_disk = int64_t{50} << 30;
    bool feed = false;  // only rank 0 has the model; it streams the other ranks' shards to them
                        // (weight_stream.h)
};

// Parses a type of the KV cache. Errors: kUsage; the message names `flag` and the types.
Result<DType> ParseKvType(std::string_view flag, std::string_view name);
// Parses one type, or two types of keys and of values ("q8_0,q4_0").
Result<KvTypes> ParseKvTypes(std::string_view flag, std::string_view names);
const char* OverlapName(backend::Overlap overlap);  // "off", "auto", "on"
// Errors: kUsage.
Result<backend::Overlap> ParseOverlap(std::string_view name);
const char* DeviceSumName(backend::DeviceSum sum);  // "auto", "split", "spin", "peer"
// Errors: kUsage.
Result<backend::DeviceSum> ParseDeviceSum(std::string_view name);

// Opens the job's model, with its adapters and its draft head.
Result<std::unique_ptr<model_files::ModelSource>> OpenModelOf(const Job& job);
// Checks, before anything starts, that the job's adapters exist and fit its model, and warns about
// tensors of the adapters that are ignored. Errors: as model_files::AdaptedSource.
Status CheckAdapters(const Job& job);

std::string JobToJson(const Job& job);
// limit: of the files that the job names. Errors: kCorrupt; the message has the field, its value
// and the valid range; kDenied (limit), kNotFound (with a limit: the model is not in the cache).
Result<Job> JobFromJson(const std::string& text, const FolderLimit& limit = {});
// The current job of `cluster`, within this host's folders.
Result<Job> JobOf(const cluster::Cluster& cluster);

}  // namespace weft::engine
