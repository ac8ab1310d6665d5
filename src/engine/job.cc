#include "engine/job.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace weft::engine {

namespace {

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

Result<backend::Overlap> ParseOverlap(std::string_view name) {
    for (const auto overlap :
         {backend::Overlap::kNever, backend::Overlap::kAuto, backend::Overlap::kAlways}) {
        if (name == OverlapName(overlap)) return overlap;
    }
    return MakeError(ErrorCode::kUsage, "--overlap {}: expected auto, off or on", name);
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
    return nlohmann::json{
        {"model", job.model},
        {"tp", job.tp},
        {"pp", job.pp},
        {"ep", job.ep},
        {"split", job.split},
        {"threads", job.threads},
        {"ctx", job.ctx},
        {"kv_tokens", job.kv_tokens},
        {"chunk", job.chunk},
        {"max_outputs", job.max_outputs},
        {"outputs", static_cast<int>(job.outputs)},
        {"kv_dtype", std::string(Info(job.kv_dtype).name)},
        {"draft_bytes", job.draft_bytes},
        {"reference", job.reference},
        {"trace", job.trace},
        {"verify", job.verify},
        {"net_table", NetTableName(job.net_table)},
        {"proof", job.proof},
        {"overlap", OverlapName(job.overlap)},
        {"feed", job.feed},
        {"adapters", std::move(adapters)},
    }
        .dump();
}

Result<Job> JobFromJson(const std::string& text) {
    Job job;
    try {
        const nlohmann::json json = JsonOrDiscarded(text);
        json.at("model").get_to(job.model);
        json.at("tp").get_to(job.tp);
        json.at("pp").get_to(job.pp);
        json.at("ep").get_to(job.ep);
        json.at("split").get_to(job.split);
        json.at("threads").get_to(job.threads);
        json.at("ctx").get_to(job.ctx);
        json.at("kv_tokens").get_to(job.kv_tokens);
        json.at("chunk").get_to(job.chunk);
        json.at("max_outputs").get_to(job.max_outputs);
        job.outputs = static_cast<model::Outputs>(json.at("outputs").get<int>());
        json.at("draft_bytes").get_to(job.draft_bytes);
        json.at("reference").get_to(job.reference);
        json.at("trace").get_to(job.trace);
        json.at("verify").get_to(job.verify);
        const auto table = ParseNetTable(json.at("net_table").get<std::string>());
        if (!table.ok()) return MakeError(ErrorCode::kCorrupt, "job: {}", table.error().message);
        job.net_table = *table;
        json.at("proof").get_to(job.proof);
        json.at("feed").get_to(job.feed);
        for (const nlohmann::json& adapter : json.at("adapters")) {
            job.adapters.push_back(
                {adapter.at(0).get<std::string>(), adapter.at(1).get<std::string>()});
        }
        const auto overlap = ParseOverlap(json.at("overlap").get<std::string>());
        if (!overlap.ok())
            return MakeError(ErrorCode::kCorrupt, "job: {}", overlap.error().message);
        job.overlap = *overlap;
        const auto dtype = DTypeOfName(json.at("kv_dtype").get<std::string>());
        if (!dtype) return MakeError(ErrorCode::kCorrupt, "job: kv_dtype is not known");
        job.kv_dtype = *dtype;
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "job from rank 0: {}", error.what());
    }
    WEFT_TRY(CheckRanges(job));
    return job;
}

}  // namespace weft::engine
