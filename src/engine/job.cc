#include "engine/job.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/device_list.h"
#include "base/field_codec.h"
#include "base/log.h"
#include "cluster/frame.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/sum_wire.h"
#include "model_files/draft_source.h"

namespace weft::engine {

namespace {

constexpr double kMostRanks = cluster::kMostRanks, kMostTokens = int64_t{1} << 31,
                 kMostRows = 65536;

std::string KvTypesName(const KvTypes& types) {
    return types.Name();
}

Result<KvTypes> ParseJobKvTypes(std::string_view names) {
    return ParseKvTypes("kv_dtype", names);
}

const char* OutputsName(model::Outputs outputs) {
    switch (outputs) {
        case model::Outputs::kLogits: return "logits";
        case model::Outputs::kHidden: return "hidden";
        case model::Outputs::kBoth: return "both";
        case model::Outputs::kVectors: return "vectors";
    }
    return "?";
}

std::optional<model::Outputs> FindOutputs(std::string_view name) {
    for (const auto outputs :
         {model::Outputs::kLogits, model::Outputs::kHidden, model::Outputs::kBoth}) {
        if (name == OutputsName(outputs)) return outputs;
    }
    return std::nullopt;
}

constexpr auto kJobFields = [](auto& job, auto& visit) {
    visit.Kind(kJobKind);
    visit("feed", job.feed);
    // (Streamed files are rank 0's files.)
    visit.Path("model", job.model, [&](const std::string& word) {
        return job.feed ? std::string() : model_files::PathOfModel(word);
    });
    visit("tp", job.tp, FieldRange{0, kMostRanks});
    visit("pp", job.pp, FieldRange{0, kMostRanks});
    visit("ep", job.ep, FieldRange{0, kMostRanks});
    visit("split", job.split, FieldRange{std::numeric_limits<double>::min(), 1e6});
    visit("split_auto", job.split_auto);
    visit("threads", job.threads, FieldRange{0, 1024});
    visit("device", job.device);
    visit("experts", job.experts);
    visit("gpu_layers", job.gpu_layers, FieldRange{-1, 1 << 20});
    visit("stream_rows", job.stream_rows, FieldRange{-1, 1 << 20});
    visit("weights_on_drive", job.weights_on_drive);
    visit("memory", job.memory, FieldRange{0, int64_t{1} << 50});
    visit("ctx", job.ctx, FieldRange{0, kMostTokens});
    visit("kv_tokens", job.kv_tokens, FieldRange{0, kMostTokens});
    visit("cache_share", job.cache_share, FieldRange{0, 1});
    visit("fits_ctx", job.fits_ctx);
    visit("cache_agreed", job.cache_agreed);
    visit("state_slots", job.state_slots, FieldRange{1, kMostTokens});
    visit("chunk", job.chunk, FieldRange{1, kMostRows});
    visit("max_outputs", job.max_outputs, FieldRange{1, kMostRows});
    visit.Named("kv_dtype", job.kv_dtype, KvTypesName, ParseJobKvTypes);
    visit.Named("outputs", job.outputs, OutputsName, FindOutputs);
    visit("draft_bytes", job.draft_bytes, FieldRange{0, int64_t{1} << 50});
    visit("draft_token_bytes", job.draft_token_bytes, FieldRange{0, int64_t{1} << 40});
    visit("draft_head", job.draft_head);
    visit.Path("draft_folder", job.draft_folder, [&](const std::string& word) {
        return job.feed || word.empty() ? std::string() : model_files::PathOfModel(word);
    });
    visit("reference", job.reference);
    visit("exact", job.exact);
    visit("trace", job.trace);
    visit("power", job.power);
    visit("verify", job.verify);
    visit("verify_model", job.verify_model);
    visit("self_test", job.self_test);
    visit("any_device", job.any_device);
    visit("warm_up", job.warm_up);
    visit.Named("net_table", job.net_table, fabric::NetTableName, fabric::ParseNetTable);
    visit.Named("overlap", job.overlap, OverlapName, ParseOverlap);
    visit.Named("wire", job.wire, SumWireName, ParseSumWire);
    visit.Named("prompt_wire", job.prompt_wire, SumWireName, ParseSumWire);
    visit.Named("gpu_sum", job.device_sum, DeviceSumName, ParseDeviceSum);
    visit("cache_ram", job.cache_ram, FieldRange{0, int64_t{1} << 50});
    visit.Path("cache_dir", job.cache_dir);
    visit.Path("slot_dir", job.slot_dir);
    visit("cache_disk", job.cache_disk, FieldRange{0, int64_t{1} << 50});
    visit("slot_disk", job.slot_disk, FieldRange{0, int64_t{1} << 50});
    visit.List("adapters", job.adapters, [&](auto& adapter, auto& fields) {
        fields("name", adapter.name);
        fields.Path("folder", adapter.folder, [&](const std::string& folder) {
            return Result<std::string>(job.feed ? "" : folder);
        });
    });
};

}  // namespace

const char* OverlapName(backend::Overlap overlap) {
    switch (overlap) {
        case backend::Overlap::kNever: return "off";
        case backend::Overlap::kAuto: return "auto";
        case backend::Overlap::kAlways: return "on";
    }
    return "?";
}

Result<DType> ParseKvType(std::string_view flag, std::string_view name) {
    const auto dtype = DTypeOfName(name);
    for (const DType known :
         {DType::kF16, DType::kBF16, DType::kF32, DType::kQ8_0, DType::kQ5_1, DType::kQ4_0}) {
        if (dtype == known) return known;
    }
    return MakeError(ErrorCode::kUsage, "{} {}: expected f16, bf16, f32, q8_0, q5_1 or q4_0", flag,
                     name);
}

Result<KvTypes> ParseKvTypes(std::string_view flag, std::string_view names) {
    const size_t comma = std::min(names.find(','), names.size());
    WEFT_ASSIGN(const DType keys, ParseKvType(flag, names.substr(0, comma)));
    if (comma == names.size()) return KvTypes(keys);
    WEFT_ASSIGN(const DType values, ParseKvType(flag, names.substr(comma + 1)));
    return KvTypes(keys, values);
}

Result<backend::Overlap> ParseOverlap(std::string_view name) {
    for (const auto overlap :
         {backend::Overlap::kNever, backend::Overlap::kAuto, backend::Overlap::kAlways}) {
        if (name == OverlapName(overlap)) return overlap;
    }
    return MakeError(ErrorCode::kUsage, "--overlap {}: expected auto, off or on", name);
}

const char* DeviceSumName(backend::DeviceSum sum) {
    switch (sum) {
        case backend::DeviceSum::kAuto: return "auto";
        case backend::DeviceSum::kSplit: return "split";
        case backend::DeviceSum::kSpin: return "spin";
        case backend::DeviceSum::kPeer: return "peer";
    }
    return "?";
}

Result<backend::DeviceSum> ParseDeviceSum(std::string_view name) {
    for (const auto sum : {backend::DeviceSum::kAuto, backend::DeviceSum::kSplit,
                           backend::DeviceSum::kSpin, backend::DeviceSum::kPeer}) {
        if (name == DeviceSumName(sum)) return sum;
    }
    return MakeError(ErrorCode::kUsage, "--gpu-allreduce {}: expected auto, split, spin or peer",
                     name);
}

Result<std::unique_ptr<model_files::ModelSource>> OpenModelOf(const Job& job) {
    WEFT_ASSIGN(auto source, model_files::OpenAdapted(job.model, job.adapters));
    return model_files::WithDraftHead(std::move(source), job.draft_folder);
}

Status CheckAdapters(const Job& job) {
    if (job.adapters.empty()) return {};
    WEFT_ASSIGN(auto model, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const auto adapted,
                model_files::AdaptedSource::Make(std::move(model), job.adapters));
    for (const std::string& warning : adapted->Warnings()) Log(LogLevel::kWarning, "{}", warning);
    return {};
}

std::string JobToJson(const Job& job) {
    return EncodeFields(job, kJobFields);
}

Result<Job> JobFromJson(const std::string& text, const FolderLimit& limit) {
    Job job;
    WEFT_TRY(DecodeFields("job from rank 0", text, kJobFields, job, limit));
    WEFT_TRY(backend::CheckDeviceNames(job.device));
    WEFT_TRY(CheckExperts(job.experts));
    return job;
}

Result<Job> JobOf(const cluster::Cluster& cluster) {
    return JobFromJson(cluster.job(), cluster.folders());
}

}  // namespace weft::engine
