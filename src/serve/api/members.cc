#include "serve/api/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace weft::serve {
namespace {

constexpr size_t kMostUnknown = 20;    // names noted of one request
constexpr size_t kMostNameBytes = 60;  // of an unknown member in the log

// Whether the value is null, false, 0, or an empty text, list or object, which clients send for
// "not used".
bool IsNothing(const Json& value) {
    if (value.is_number()) return value.get<double>() == 0;
    return value.is_null() || value == false || value == "" ||
           (value.is_structured() && value.empty());
}

// Whether the value holds no text, number or switch, as text-generation-webui's empty history does.
bool HoldsNothing(const Json& value) {
    if (value.is_structured()) return std::ranges::all_of(value, HoldsNothing);
    return value.is_null() || value == "";
}

bool IsNotPositive(const Json& value) {
    return IsNothing(value) || (value.is_number() && value.get<double>() <= 0);
}

bool IsAtMostOne(const Json& value) {
    return IsNothing(value) || (value.is_number() && value.get<double>() <= 1);
}

bool IsAtLeastOne(const Json& value) {
    return value.is_null() || (value.is_number() && value.get<double>() >= 1);
}

bool IsOne(const Json& value) {
    return value.is_null() || (value.is_number() && value.get<double>() == 1);
}

bool IsTrue(const Json& value) {
    return value.is_null() || value == true || value == 1;
}

bool IsTextOnly(const Json& value) {
    return IsNothing(value) || (value.is_array() && std::ranges::all_of(value, [](const Json& v) {
                                    return v == "text";
                                }));
}

// Members whose effect Weft lacks, and the values that request no effect.
struct Refused {
    std::string_view name;
    bool (*neutral)(const Json&) = IsNothing;
};
constexpr Refused kRefused[] = {
    // vLLM
    {"use_beam_search"},
    {"logits_processors"},
    {"structural_tag"},
    {"prompt_embeds"},
    {"multi_modal_data"},
    {"lora_request"},
    {"repetition_detection"},
    // SGLang
    {"stop_regex"},
    {"custom_logit_processor"},
    {"lora_path"},
    {"video_data"},
    {"audio_data"},
    // llama-server
    {"mirostat"},
    {"dynatemp_range", IsNotPositive},
    {"adaptive_target", IsNotPositive},
    {"min_keep", IsAtMostOne},
    {"grammar_lazy"},
    {"lora"},
    {"image_data"},
    {"images"},
    // text-generation-webui and others
    {"mirostat_mode"},
    {"dynamic_temperature"},
    {"no_repeat_ngram_size"},
    {"encoder_repetition_penalty", IsAtMostOne},
    {"guidance_scale", IsAtMostOne},
    {"penalty_alpha"},
    {"top_a"},
    {"smoothing_factor"},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"tfs", IsAtLeastOne},
    {"tfs_z", IsAtLeastOne},
    {"loras"},
    {"adapter_id"},
    // transformers
    {"num_beams", IsAtMostOne},
    {"num_beam_groups", IsAtMostOne},
    {"length_penalty", IsOne},
    // where the conversation would be elsewhere than in the request
    {"thread"},
    {"previous_response_id"},
    {"conversation"},
    {"conversation_id"},
    {"thread_id"},
    {"parent_message_id"},
    {"last_message_id"},
    {"last_response_id"},
    {"context_id"},
    {"cached_content"},
    {"conversations"},
    {"session_params"},
    {"system"},
    {"preamble"},
    {"response_prefix"},
    {"instructions"},
    // where a request has one answer
    {"n", IsOne},
    {"n_cmpl", IsOne},
    {"num_return_sequences", IsOne},
    {"candidate_count", IsOne},
    // members that default to true
    {"add_special_tokens", IsTrue},
    {"add_bos_token", IsTrue},
    {"include_reasoning", IsTrue},
    {"separate_reasoning", IsTrue},
    {"detokenize", IsTrue},
    // OpenAI
    {"modalities", IsTextOnly},
    {"audio"},
    {"best_of", IsAtMostOne},
    // Anthropic
    {"mcp_servers"},
};

// Members that never change what Weft computes.
constexpr std::string_view kWithoutEffect[] = {"user",
                                               "metadata",
                                               "store",
                                               "service_tier",
                                               "safety_identifier",
                                               "prompt_cache_key",
                                               "prompt_cache_retention",
                                               "client_metadata",
                                               "moderation",
                                               "model",
                                               "stream",
                                               "stream_options",
                                               "request_id",
                                               "priority",
                                               "cache_prompt",
                                               "betas",
                                               "cache_control",
                                               "keep_alive",
                                               "id_slot",
                                               "id_task",
                                               "speed",
                                               "inference_geo",
                                               "truncation",
                                               "data_parallel_rank",
                                               "rid",
                                               "bootstrap_host",
                                               "bootstrap_port",
                                               "bootstrap_room",
                                               "api_key"};

// Members that on other servers change a part of the answer or its form; here they have no effect.
constexpr std::string_view kLeftOut[] = {
    // OpenAI
    "prediction", "web_search_options", "verbosity", "background", "include", "reasoning_effort",
    "reasoning", "max_tool_calls", "parallel_tool_calls", "functions", "function_call", "tools",
    "tool_choice", "logprobs", "top_logprobs", "suffix", "context_management", "stop",
    // vLLM
    "early_stopping", "return_token_ids", "prompt_logprobs", "echo", "mm_processor_kwargs",
    "media_io_kwargs", "kv_transfer_params", "vllm_xargs", "guided_decoding_backend",
    "guided_whitespace_pattern", "truncate_prompt_tokens", "return_tokens_as_token_ids",
    "encoding_format", "dimensions", "normalize", "use_activation", "continue_final_message",
    "add_generation_prompt", "chat_template_kwargs",
    // SGLang
    "return_hidden_states", "return_routed_experts", "custom_params",
    // llama-server
    "n_keep", "n_discard", "n_probs", "n_indent", "n_cache_reuse", "samplers", "t_max_predict_ms",
    "t_max_prompt_ms", "post_sampling_probs", "dynatemp_exponent", "adaptive_decay", "mirostat_tau",
    "mirostat_eta", "grammar_triggers", "preserved_tokens", "reasoning_format",
    "reasoning_in_content", "thinking_forced_open", "generation_prompt", "chat_format",
    "timings_per_token", "return_progress", "backend_sampling", "speculative.n_max",
    "speculative.n_min", "speculative.p_min", "speculative.type", "return_tokens",
    "response_fields", "cache_salt",
    // Ollama
    "num_keep", "num_batch", "num_gpu", "main_gpu", "num_gqa", "num_thread", "numa", "low_vram",
    "f16_kv", "logits_all", "vocab_only", "use_mmap", "use_mlock", "embedding_only",
    "rope_frequency_base", "rope_frequency_scale", "num_ctx", "think", "draft_num_predict",
    "options",
    // Anthropic
    "container", "output_config", "output_format", "thinking",
    // text-generation-webui, KoboldCpp, TabbyAPI
    "banned_strings", "max_length", "max_context_length", "rep_pen_slope", "sampler_order",
    "temperature_last", "sampler_priority", "dynatemp_low", "dynatemp_high", "smoothing_curve",
    "negative_prompt", "truncation_length", "auto_max_new_tokens", "legacy_api"};

// Members of text-generation-webui that default to true.
constexpr std::string_view kUsuallyTrue[] = {"spaces_between_special_tokens", "stream_reasoning",
                                             "parse_tool_calls", "truncate", "shift"};

// Members of llama-server that default to false, though their names speak of reasoning.
constexpr std::string_view kUsuallyFalse[] = {"reasoning_in_content", "thinking_forced_open"};

// The name in lower case without '_' and '-': previousResponseId is previous_response_id.
std::string Folded(std::string_view name) {
    std::string folded;
    for (const char c : name) {
        if (c == '_' || c == '-') continue;
        folded += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return folded;
}

const Refused* FindRefused(const std::string& folded) {
    const auto* const found = std::ranges::find_if(kRefused, [&](const Refused& row) {
        auto rest = folded.begin();
        for (const char c : row.name) {
            if (c == '_') continue;
            if (rest == folded.end() || *rest != c) return false;
            ++rest;
        }
        return rest == folded.end();
    });
    return found == std::end(kRefused) ? nullptr : found;
}

bool Has(std::span<const std::string_view> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

// Whether the value requests nothing. 0 and false switch reasoning off, and an empty object of
// options switches a search on.
bool RequestsNone(std::string_view name, const Json& value) {
    if (!IsNothing(value) || Has(kUsuallyFalse, name)) return IsNothing(value);
    const std::string folded = Folded(name);
    const auto names = [&](const char* word) { return folded.find(word) != folded.npos; };
    if (names("think") || names("reason")) return !value.is_number() && !value.is_boolean();
    return !(names("search") && value.is_object());
}

void Refuse(Fields& fields, const std::string& name, std::string_view advice = {}) {
    fields.Fail(name.c_str(),
                fmt::format("'{}' is not supported: the answer would differ from the one that this "
                            "value asks for.{}{}",
                            fields.PathOf(name.c_str()), advice.empty() ? "" : " ", advice),
                "unsupported_value");
}

// Whether the object is a message, in OpenAI's form, Gemini's or ShareGPT's.
bool IsMessage(const Json& value) {
    constexpr const char* kContents[] = {
        "content", "parts",      "message",       "text",
        "value",   "tool_calls", "function_call", "reasoning_content"};
    constexpr std::string_view kSpeakers[] = {
        "human",  "user", "gpt",   "assistant", "chatgpt",       "bing",       "bard",
        "system", "tool", "model", "function",  "function_call", "observation"};
    if (!value.is_object()) return false;
    const auto parts = value.find("parts");
    if (parts != value.end() && parts->is_array()) return true;
    const auto has = [&](const char* name) { return value.contains(name); };
    if (has("role")) return std::ranges::any_of(kContents, has);
    const Json from = value.value("from", Json());
    return from.is_string() && has("value") &&
           Has(kSpeakers, LowerCase(from.get_ref<const std::string&>()));
}

// Whether the value is a list of messages.
bool IsConversation(const Json& value) {
    return value.is_array() && !value.empty() && std::ranges::all_of(value, IsMessage);
}

// Whether an unknown member carries a part of the conversation, or names one that it continues.
bool CarriesConversation(std::string_view folded, const Json& value) {
    constexpr std::string_view kTexts[] = {"history",           "prefill",
                                           "systemprompt",      "systemmessage",
                                           "systeminstruction", "systeminstructions",
                                           "developermessage"};
    constexpr size_t kMostSetting = 8;  // letters of a word such as "auto"
    const bool setting = folded.starts_with("use") && !folded.starts_with("user") &&
                         value.is_string() &&
                         value.get_ref<const std::string&>().size() <= kMostSetting;
    const bool text = !setting && std::ranges::any_of(kTexts, [&](std::string_view end) {
        return folded.ends_with(end);
    });
    if (text && (value.is_string() || value.is_structured())) return !HoldsNothing(value);
    const bool continues = folded.starts_with("previous") && folded.ends_with("id");
    return IsConversation(value) || (continues && !IsNothing(value));
}

// The name is text of the request: it is cut, escaped and quoted.
std::string SafeName(const std::string& name) {
    return Json(name.substr(0, kMostNameBytes)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Refuses a chat template of the request's own, and documents that the model's template does not
// show.
void CheckTemplate(Fields& fields, const Served& served) {
    const std::string own = served.chat ? served.chat->source() : "";
    const Json& form = fields.Get("chat_template");
    if (!IsNothing(form) && form != own) {
        Refuse(fields, "chat_template", "The server uses the model's own chat template.");
    }
    const bool chats = served.generates;  // else these are the documents of /v1/rerank
    if (chats && !IsNothing(fields.Get("documents")) &&
        own.find("documents") == std::string::npos) {
        Refuse(fields, "documents", "The model's chat template shows no documents.");
    }
}

}  // namespace

void CheckMembers(Fields& fields, const Served& served, LeftMembers& left) {
    CheckTemplate(fields, served);
    // (A search for each member's value would take quadratic time.)
    for (const auto& [name, found] : fields.Unread()) {
        const Json& value = *found;
        const std::string folded = Folded(name);
        if (const Refused* const refused = FindRefused(folded)) {
            if (!refused->neutral(value)) Refuse(fields, name);
        } else if (Has(kUsuallyTrue, name)) {
            if (!IsTrue(value)) AddNames(left.left_out, name);
        } else if (Has(kLeftOut, name) || Fields::HasOtherNames(name)) {
            if (!RequestsNone(name, value)) AddNames(left.left_out, name);
        } else if (CarriesConversation(folded, value)) {
            Refuse(fields, name);
        } else if (!Has(kWithoutEffect, name) && left.notices.size() < kMostUnknown) {
            const std::string safe = SafeName(name);
            left.notices.insert(
                fmt::format("the member {} of a request is unknown and has no effect", safe));
            if (!RequestsNone(name, value))
                AddNames(left.left_out, safe.substr(1, safe.size() - 2));
        }
    }
}

void AddUnread(const Fields& part, std::string& names) {
    size_t count = 0;
    for (const auto& [name, value] : part.Unread()) {
        if (RequestsNone(name, *value) || ++count > kMostUnknown) continue;
        const std::string safe = SafeName(part.PathOf(name.c_str()));
        AddNames(names, safe.substr(1, safe.size() - 2));
    }
}

void AddNames(std::string& names, std::string_view more) {
    while (!more.empty()) {
        const std::string_view name = more.substr(0, more.find(','));
        more.remove_prefix(std::min(more.size(), name.size() + 1));
        const bool known = ("," + names + ",").find(fmt::format(",{},", name)) != std::string::npos;
        if (known) continue;
        if (!names.empty()) names += ',';
        names += name;
    }
}

}  // namespace weft::serve
