// Job: all that a rank needs to know to run a model. The command line fills it in; rank 0 sends it
// to the other ranks as JSON (base/field_codec.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/communicators.h"
#include "backend/device.h"
#include "base/result.h"
#include "fabric/table.h"
#include "model/builder.h"
#include "model_files/lora/adapted_source.h"
#include "tensor/dtype.h"

namespace weft::engine {

inline constexpr char kJobKind[] = "model";

struct Job {
    std::string model;          // path or synthetic:NAME[:dtype]; the same text on every host
    int tp = 0, pp = 0;         // 0: chosen from the number of ranks
    int ep = 0;                 // expert groups of the tensor ranks; 0: chosen by the model
    std::vector<double> split;  // shares of the ranks; empty: even
    bool split_auto = false;    // measured shares (engine/shares.h), at the first start
    int threads = 0;            // per rank; 0: all cores of the rank
    std::string device = backend::kDefaultDevice;  // or a list (backend/device_list.h)
    int64_t ctx = 0;          // most tokens of a sequence; 0: chosen by the command
    int64_t kv_tokens = 0;    // tokens of KV cache, for all sequences together; 0: ctx
    int64_t state_slots = 1;  // slots of recurrent state, for models with such state
    int64_t chunk = 512;      // most rows of a step
    int64_t max_outputs = 1;  // most output rows of a step
    DType kv_dtype = DType::kF16;
    // Outputs of a step that rank 0 gets. With pipeline stages, kBoth means kLogits.
    model::Outputs outputs = model::Outputs::kLogits;
    int64_t draft_bytes = 0;  // memory for a draft model on rank 0, beside its share
    bool draft_head = false;  // use the model's multi-token prediction head
    bool reference = false;   // reference kernels, float32 KV cache
    bool exact = false;       // do not round activations
    bool trace = false;       // record op timings
    bool power = false;       // read power sensors
    bool self_test = true;    // several ranks: compare results before the first request
    bool verify = false;      // compare checksums of replicated state at every step
    fabric::NetTable net_table = fabric::NetTable::kAuto;
    int64_t cache_tokens() const { return kv_tokens > 0 ? kv_tokens : ctx; }
    int64_t step_rows() const { return chunk < cache_tokens() ? chunk : cache_tokens(); }
    backend::Overlap overlap = backend::Overlap::kAuto;
    backend::SumWire wire = backend::SumWire::kAuto;
    backend::DeviceSum device_sum = backend::DeviceSum::kAuto;
    // LoRA adapters of the model; the folders exist on every host, like the model. A sequence names
    // an adapter by its number, from 1.
    std::vector<model_files::NamedAdapter> adapters{};
    bool feed = false;  // only rank 0 has the model and streams their shards to the others
};

// Parses a type of the KV cache: f16, bf16, q8_0 or f32. Errors: kUsage, which names the flag.
Result<DType> ParseKvType(std::string_view flag, std::string_view name);
const char* OverlapName(backend::Overlap overlap);  // "off", "auto", "on"
// Errors: kUsage.
Result<backend::Overlap> ParseOverlap(std::string_view name);
const char* DeviceSumName(backend::DeviceSum sum);  // "auto", "split", "spin"
// Errors: kUsage.
Result<backend::DeviceSum> ParseDeviceSum(std::string_view name);

// Checks, before anything starts, that the job's adapters exist and fit its model. Errors: those of
// model_files::AdaptedSource.
Status CheckAdapters(const Job& job);

std::string JobToJson(const Job& job);
// Errors: kCorrupt, with the field, its value and the range.
Result<Job> JobFromJson(const std::string& text);

}  // namespace weft::engine
