#include "engine/job.h"

#include <nlohmann/json.hpp>

namespace weft::engine {

std::string JobToJson(const Job& job) {
    return nlohmann::json{
        {"model", job.model},         {"tp", job.tp},
        {"pp", job.pp},               {"split", job.split},
        {"threads", job.threads},     {"ctx", job.ctx},
        {"chunk", job.chunk},         {"max_outputs", job.max_outputs},
        {"kv_dtype", std::string(Info(job.kv_dtype).name)},
        {"reference", job.reference}, {"trace", job.trace},
        {"verify", job.verify},
    }
        .dump();
}

Result<Job> JobFromJson(const std::string& text) {
    Job job;
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        json.at("model").get_to(job.model);
        json.at("tp").get_to(job.tp);
        json.at("pp").get_to(job.pp);
        json.at("split").get_to(job.split);
        json.at("threads").get_to(job.threads);
        json.at("ctx").get_to(job.ctx);
        json.at("chunk").get_to(job.chunk);
        json.at("max_outputs").get_to(job.max_outputs);
        json.at("reference").get_to(job.reference);
        json.at("trace").get_to(job.trace);
        json.at("verify").get_to(job.verify);
        const auto dtype = DTypeOfName(json.at("kv_dtype").get<std::string>());
        if (!dtype) return MakeError(ErrorCode::kCorrupt, "job: kv_dtype is not known");
        job.kv_dtype = *dtype;
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "job from rank 0: {}", error.what());
    }
    return job;
}

}  // namespace weft::engine
