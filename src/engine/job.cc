#include "engine/job.h"

#include <nlohmann/json.hpp>

#include "backend/device_list.h"
#include "base/json.h"
#include "engine/sum_wire.h"

namespace weft::engine {

namespace {

// One list of fields for both ways: visit(name, field). The others have names of their own.
template <typename OneJob, typename Visit>
void Fields(OneJob& job, const Visit& visit) {
    visit("model", job.model);
    visit("tp", job.tp);
    visit("pp", job.pp);
    visit("ep", job.ep);
    visit("split", job.split);
    visit("split_auto", job.split_auto);
    visit("threads", job.threads);
    visit("device", job.device);
    visit("ctx", job.ctx);
    visit("kv_tokens", job.kv_tokens);
    visit("state_slots", job.state_slots);
    visit("chunk", job.chunk);
    visit("max_outputs", job.max_outputs);
    visit("draft_bytes", job.draft_bytes);
    visit("draft_head", job.draft_head);
    visit("reference", job.reference);
    visit("exact", job.exact);
    visit("trace", job.trace);
    visit("power", job.power);
    visit("verify", job.verify);
    visit("proof", job.proof);
    visit("feed", job.feed);
}

// The command line keeps to these; a job comes over a socket and is checked again before it sizes
// anything.
Status CheckRanges(const Job& job) {
    struct Field {
        const char* name;
        int64_t value, least, most;
    };
    const Field fields[] = {{"tp", job.tp, 0, 1024},
                            {"pp", job.pp, 0, 1024},
                            {"ep", job.ep, 0, 1024},
                            {"threads", job.threads, 0, 1024},
                            {"ctx", job.ctx, 0, int64_t{1} << 31},
                            {"kv_tokens", job.kv_tokens, 0, int64_t{1} << 31},
                            {"state_slots", job.state_slots, 1, int64_t{1} << 31},
                            {"chunk", job.chunk, 1, 65536},
                            {"max_outputs", job.max_outputs, 1, 65536},
                            {"outputs", static_cast<int64_t>(job.outputs), 0, 2},
                            {"draft_bytes", job.draft_bytes, 0, int64_t{1} << 50}};
    for (const Field& field : fields) {
        if (field.value >= field.least && field.value <= field.most) continue;
        return MakeError(ErrorCode::kCorrupt, "job from rank 0: {} is {}; expected {} to {}",
                         field.name, field.value, field.least, field.most);
    }
    for (double share : job.split) {
        if (share > 0 && share <= 1e6) continue;
        return MakeError(ErrorCode::kCorrupt, "job from rank 0: a share of split is {}", share);
    }
    return {};
}

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
    for (const DType known : {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kF32}) {
        if (dtype == known) return known;
    }
    return MakeError(ErrorCode::kUsage, "{} {}: expected f16, bf16, q8_0 or f32", flag, name);
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
    }
    return "?";
}

Result<backend::DeviceSum> ParseDeviceSum(std::string_view name) {
    for (const auto sum :
         {backend::DeviceSum::kAuto, backend::DeviceSum::kSplit, backend::DeviceSum::kSpin}) {
        if (name == DeviceSumName(sum)) return sum;
    }
    return MakeError(ErrorCode::kUsage, "--gpu-sum {}: expected auto, split or spin", name);
}

Status CheckAdapters(const Job& job) {
    if (job.adapters.empty()) return {};
    WEFT_ASSIGN([[maybe_unused]] const auto source,
                model_files::OpenAdapted(job.model, job.adapters));
    return {};
}

std::string JobToJson(const Job& job) {
    nlohmann::json adapters = nlohmann::json::array();
    for (const auto& [name, folder] : job.adapters) adapters.push_back({name, folder});
    nlohmann::json out = {{"outputs", static_cast<int>(job.outputs)},
                          {"kv_dtype", std::string(Info(job.kv_dtype).name)},
                          {"net_table", fabric::NetTableName(job.net_table)},
                          {"overlap", OverlapName(job.overlap)},
                          {"wire", SumWireName(job.wire)},
                          {"gpu_sum", DeviceSumName(job.device_sum)},
                          {"adapters", std::move(adapters)}};
    Fields(job, [&](const char* name, const auto& field) { out[name] = field; });
    return out.dump();
}

Result<Job> JobFromJson(const std::string& text) {
    Job job;
    std::string dtype_name, table, overlap, wire, device_sum;
    try {
        const nlohmann::json in = JsonOrDiscarded(text);
        Fields(job, [&](const char* name, auto& field) { in.at(name).get_to(field); });
        job.outputs = static_cast<model::Outputs>(in.at("outputs").get<int>());
        in.at("kv_dtype").get_to(dtype_name);
        in.at("net_table").get_to(table);
        in.at("overlap").get_to(overlap);
        in.at("wire").get_to(wire);
        in.at("gpu_sum").get_to(device_sum);
        for (const nlohmann::json& adapter : in.at("adapters")) {
            job.adapters.push_back(
                {adapter.at(0).get<std::string>(), adapter.at(1).get<std::string>()});
        }
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "job from rank 0: {}", error.what());
    }
    const auto dtype = DTypeOfName(dtype_name);
    const auto known_table = fabric::ParseNetTable(table);
    const auto known_overlap = ParseOverlap(overlap);
    const auto known_wire = ParseSumWire(wire);
    const auto known_sum = ParseDeviceSum(device_sum);
    if (!dtype) return MakeError(ErrorCode::kCorrupt, "job: kv_dtype is not known");
    for (const Error* error : {known_table.ok() ? nullptr : &known_table.error(),
                               known_overlap.ok() ? nullptr : &known_overlap.error(),
                               known_wire.ok() ? nullptr : &known_wire.error(),
                               known_sum.ok() ? nullptr : &known_sum.error()}) {
        if (error != nullptr) return MakeError(ErrorCode::kCorrupt, "job: {}", error->message);
    }
    job.kv_dtype = *dtype;
    job.net_table = *known_table;
    job.overlap = *known_overlap;
    job.wire = *known_wire;
    job.device_sum = *known_sum;
    WEFT_TRY(CheckRanges(job));
    WEFT_TRY(backend::CheckDeviceNames(job.device));
    return job;
}

}  // namespace weft::engine
