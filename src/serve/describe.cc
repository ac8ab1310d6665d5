#include "serve/describe.h"

#include <fmt/format.h>

#include <ctime>

#include "base/log.h"
#include "engine/rank/device_options.h"
#include "engine/sampling/sampler_defaults.h"
#include "model/hyper.h"
#include "model_files/read_tokenizer.h"
#include "model_files/score_head.h"
#include "serve/api/reasoning.h"

namespace weft::serve {
std::string NameOfModel(const std::string& words) {
    std::string name = words;
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    if (const size_t slash = name.rfind('/');
        slash != std::string::npos && !name.starts_with("hf:"))
        name.erase(0, slash + 1);
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    return name;
}

Status NameModels(const ServerOptions& options, Served& served) {
    served.name = options.name.empty() ? NameOfModel(options.job.model) : options.name;
    served.path = options.job.model;
    served.aliases = options.aliases;
    served.template_variables = options.template_variables;
    served.reasoning_budget = options.reasoning_budget;
    served.media_as_text = options.media_as_text;
    served.aliases.push_back(options.job.model);
    for (const auto& [name, folder] : options.job.adapters) {
        if (served.AdapterOf(name) == 0) {
            return MakeError(ErrorCode::kUsage,
                             "--lora {}={}: '{}' is the model's own name (see --name, --alias)",
                             name, folder, name);
        }
        served.adapters.push_back(name);
    }
    return {};
}

namespace {

// A language model scores a pair by its answer, "yes" or "no".
Status ScoreByAnswers(const model_files::ModelSource& source, model_files::EmbeddingHead& head) {
    WEFT_ASSIGN(const auto tokenizer, model_files::LoadTokenizer(source));
    const model_files::ScoreTokens tokens{tokenizer->Find("yes"), tokenizer->Find("no")};
    if (tokens.yes < 0 || tokens.no < 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "--pooling rank: {} has no head that scores, and its vocabulary lacks the "
                         "tokens 'yes' and 'no'",
                         source.name());
    }
    return model_files::SetScoreTokens(source, tokens, head);
}

}  // namespace

Status ReadHints(const ServerOptions& options, const model_files::ModelSource& source,
                 Served& served) {
    WEFT_ASSIGN(served.head, model_files::ReadEmbeddingHead(source));
    if (options.rerank && !served.head.scores) WEFT_TRY(ScoreByAnswers(source, served.head));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(source));
    if (served.head.score_tokens.yes >= 0) {
        if (hyper.logit_cap != 0 || hyper.logit_scale != 1) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: scores by tokens support no factor or cap of logits",
                             source.name());
        }
    }
    served.generates = !options.embeddings && !served.head.from_file && !hyper.encoder;
    if (options.pooling) {
        if (served.head.poolings.size() != 1) {
            return MakeError(
                ErrorCode::kUsage,
                "--pooling {}: {} joins the results of {} poolings, and its next steps "
                "need all of them. Leave --pooling out",
                model_files::PoolingName(*options.pooling), source.name(),
                served.head.poolings.size());
        }
        served.head.poolings = {*options.pooling};
    }
    model_files::SamplingHints hints;
    if (options.model_sampling) hints = engine::HintsOf(source);
    engine::Apply(hints, served.sampling);
    engine::Apply(options.sampling, served.sampling);
    served.sampling_by = fmt::format("{} ({})", engine::SamplingText(served.sampling),
                                     engine::SamplingOrigin(hints, options.sampling));
    return engine::CheckSampler(served.sampling);
}

void ReadTemplate(const model_files::ModelSource& source, const tokenizer::Tokenizer& tokenizer,
                  Served& served) {
    const model_files::Metadata& meta = source.meta();
    served.fim = FindFim(meta, tokenizer);
    if (served.head.scores) {
        const auto messages = model_files::ReadsMessages(source);
        auto pairs = chat::PairForm::Load(meta, tokenizer, served.head.score_tokens.yes >= 0,
                                          !messages.ok() || *messages);
        if (pairs.ok())
            served.pairs.emplace(std::move(*pairs));
        else
            Log(LogLevel::kWarning, "{}", pairs.error().message);
    }
    auto chat = chat::Chat::Load(meta, tokenizer);
    if (chat.ok()) {
        served.family = chat::FamilyOf(*chat);
        served.chat.emplace(std::move(*chat));
        if (const Status& tools = served.chat->tools_status(); !tools.ok()) {
            Log(LogLevel::kWarning, "{}. Requests with tools are refused", tools.error().message);
        }
        served.forms = chat::FindForms(*served.chat);
        FitServersEffort(served);
        const chat::TemplateCapabilities& form = served.forms.tools;
        served.call_frame =
            chat::FindCallFrame(*served.chat, form, chat::CallFamily(served.family, form));
    } else {
        served.chat_error = chat.error().message;
    }
    served.card = DescribeModel(source, served.path, served.chat ? &*served.chat : nullptr);
}

Result<Served> DescribeUnloaded(const ServerOptions& options) {
    Served served;
    served.created_s = std::time(nullptr);
    WEFT_TRY(NameModels(options, served));
    WEFT_ASSIGN(const auto source, model_files::OpenModel(options.job.model));
    WEFT_ASSIGN(served.hyper, model::ReadHyper(*source));
    WEFT_ASSIGN(const auto tokenizer, model_files::LoadTokenizer(*source));
    WEFT_TRY(ReadHints(options, *source, served));
    served.context = options.job.ctx;
    ReadTemplate(*source, *tokenizer, served);
    served.chat.reset();
    served.on_cpu = engine::MayAllUseHostCores(options.job.device);
    return served;
}

}  // namespace weft::serve
