// Members of other servers' requests, in every API that generates tokens: read, refused if their
// value would change the answer, or named in the log.
#include "serve/api/members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "serve/api/anthropic/messages.h"
#include "serve/api/llama/llama_server.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/chat.h"
#include "serve/api/openai/completions.h"
#include "serve/api/openai/responses.h"
#include "serve/api/reasoning.h"
#include "serve/api/rerank.h"
#include "serve/api/sampling.h"
#include "support/temp_dir.h"
#include "support/tiny_engine.h"

namespace weft::serve {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if enable_thinking is defined %}[{{ enable_thinking }}]{% endif %}";

struct ApiRow {
    const char* name;
    std::optional<ApiError> (*plan)(const Json&, const Served&, AnswerPlan&);
    Json body;
    bool options = false;  // members of this test are within "options"
};

const std::vector<ApiRow>& Apis() {
    static const Json messages = Json::parse(R"([{"role": "user", "content": "a"}])");
    static const std::vector<ApiRow> apis = {
        {"chat", PlanChat, {{"messages", messages}}},
        {"completions", PlanCompletion, {{"prompt", "a"}}},
        {"responses", PlanResponse, {{"input", "a"}}},
        {"messages", PlanMessages, {{"messages", messages}, {"max_tokens", 40}}},
        {"completion", PlanPlainCompletion, {{"prompt", "a"}}},
        {"ollama chat", PlanOllamaChat, {{"model", "m"}, {"messages", messages}}, true},
        {"ollama generate", PlanOllamaGenerate, {{"model", "m"}, {"prompt", "a"}}, true}};
    return apis;
}

class Members : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        dir_ = std::make_unique<test::TempDir>();
        engine_ = support::StartTinyEngine(*dir_ / "m");
        served_.engine = engine_.get();
        served_.name = "m";
        Use(kTemplate);
        served_.constraints = std::make_unique<Constraints>(engine_->tokenizer());
        served_.longest_piece_bytes = 1;
    }
    static void TearDownTestSuite() {
        served_ = {};
        engine_.reset();
        dir_.reset();
    }

    void TearDown() override {
        Use(kTemplate);
        served_.template_variables = Json::object();
        served_.card.thinking = false;
    }
    static void Use(const std::string& form) {
        served_.chat = chat::Chat::Make(form, engine_->tokenizer()).value();
        served_.forms = chat::FindForms(*served_.chat);
    }

    // Plans a request of `api` with these members.
    static std::optional<ApiError> Plan(const ApiRow& api, const Json& members, AnswerPlan& plan) {
        Json body = api.body;
        if (api.options) {
            body["options"] = members;
        } else {
            body.update(members);
        }
        return api.plan(body, served_, plan);
    }
    static engine::Request Planned(const ApiRow& api, const Json& members) {
        AnswerPlan plan;
        const auto error = Plan(api, members, plan);
        EXPECT_FALSE(error) << api.name << members << (error ? error->message : "");
        return plan.choices.empty() ? engine::Request() : plan.choices[0].request;
    }
    static std::string Refusal(const ApiRow& api, const Json& members) {
        AnswerPlan plan;
        const auto error = Plan(api, members, plan);
        return error && error->status == 400 ? error->param + ": " + error->message : "";
    }
    static std::string LeftOut(const ApiRow& api, const Json& members) {
        AnswerPlan plan;
        const auto error = Plan(api, members, plan);
        EXPECT_FALSE(error) << api.name << members << (error ? error->message : "");
        return plan.left.left_out;
    }

    // Expects these prompts, and that nothing except a summary is omitted.
    struct AskedRow {
        const char *asked, *shown;
    };
    static void Expect(std::span<const AskedRow> cases) {
        for (const ApiRow& api : Apis()) {
            const std::string name = api.name;
            if (name != "chat" && name != "responses" && name != "messages") continue;
            for (const auto& [asked, shown] : cases) {
                const engine::Request request = Planned(api, Json::parse(asked));
                EXPECT_EQ(engine_->tokenizer().Decode(request.prompt), shown) << name << asked;
                const bool summary = std::string_view(asked).find("summary") != std::string::npos;
                EXPECT_EQ(LeftOut(api, Json::parse(asked)), summary ? "reasoning.summary" : "")
                    << name << asked;
            }
        }
    }

    static inline std::unique_ptr<test::TempDir> dir_;
    static inline std::unique_ptr<engine::Engine> engine_;
    static inline Served served_;
};

TEST_F(Members, AnotherAnswerIsRefusedByName) {
    const Json refused = Json::parse(R"({"use_beam_search": true, "mirostat": 2,
        "mirostat_mode": 1, "chat_template": "{{ x }}", "documents": [{"text": "d"}],
        "structural_tag": "{}", "stop_regex": "a+", "logits_processors": ["x"],
        "dynatemp_range": 0.5, "lora_path": "x", "no_repeat_ngram_size": 3, "guidance_scale": 1.5,
        "modalities": ["text", "audio"], "best_of": 3, "num_beams": 4, "length_penalty": 0.5,
        "tfs_z": 0.9, "tfs": 0.9, "separate_reasoning": false, "detokenize": false,
        "thread": {"type": "create"}, "previous_response_id": "resp_1", "conversation": "conv_1",
        "session_params": {"id": "s"}, "conversation_id": "c", "num_return_sequences": 2})");
    for (const ApiRow& api : Apis()) {
        for (const auto& [name, value] : refused.items()) {
            const bool many = name == "num_return_sequences" &&
                              (api.name == std::string("chat") || api.plan == PlanCompletion);
            EXPECT_EQ(Refusal(api, {{name, value}}).find(name) == std::string::npos, many)
                << api.name << " takes " << name;
        }
    }
}

// Known or not: a part of the conversation that would be dropped changes the answer.
TEST_F(Members, PartsOfAConversationAreRefused) {
    const Json parts = Json::parse(R"({"previous_message_id": "msg_1",
        "previous_interaction_id": "i", "history": [["Hi", "Hello"]],
        "chat_history": [{"role": "USER", "message": "Hi"}], "preamble": "Be brief.",
        "turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
        "previousResponseId": "resp_1", "systemPrompt": "Be brief.", "system_message": "Be brief.",
        "systemInstruction": {"parts": [{"text": "Be brief."}]}, "system_instruction": "Be brief.",
        "custom_system_prompt": "Be brief.", "conversations": [{"from": "human", "value": "Hi"}],
        "conversation_history": [{"from": "human", "value": "Hi"}], "messageHistory": ["Hi"],
        "contents": [{"parts": [{"text": "Hi"}]}], "user_history": "1+2=3", "userPrefill": "Sure",
        "cached_content": "cachedContents/1",
        "context_id": "ctx-1", "last_message_id": "m", "assistant_prefill": "Sure",
        "multi_modal_data": {"image": "x"}, "lora_request": {"name": "x"}, "loras": ["x"],
        "x-shareGPT": [{"from": "human", "value": "Hi"}], "conversationId": "c",
        "use_case_history": "Hi. Hello.", "context": [{"role": "user", "value": "Hi"},
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]})");
    for (const ApiRow& api : Apis()) {
        for (const auto& [name, value] : parts.items()) {
            EXPECT_NE(Refusal(api, {{name, value}}).find(name), std::string::npos)
                << api.name << " takes " << name;
            const Json nothing = value.is_array() ? Json::array() : Json("");
            EXPECT_EQ(Refusal(api, {{name, nothing}}), "") << api.name << name;
        }
        const Json empty = Json::parse(R"({"internal": [], "visible": []})");
        EXPECT_EQ(Refusal(api, {{"history", empty}}), "") << api.name;
        const Json said = Json::parse(R"({"internal": [["Hi", ""]], "visible": []})");
        EXPECT_NE(Refusal(api, {{"history", said}}), "") << api.name;
        // Open WebUI sends ids of its own.
        const Json ids{{"chat_id", "c"}, {"session_id", "s"}, {"save_history", true}};
        EXPECT_EQ(LeftOut(api, ids), "chat_id,session_id,save_history") << api.name;
        const Json settings = Json::parse(R"({"use_prefill": "auto", "filters": [
            {"from": "2020", "value": "2021"}], "roles": [{"role": "admin"}]})");
        EXPECT_EQ(LeftOut(api, settings), "use_prefill,filters,roles") << api.name;
        EXPECT_NE(Refusal(api, {{"images", {"iVBORw0KGgo="}}}), "") << api.name;
        EXPECT_EQ(Refusal(api, {{"images", Json::array()}}), "") << api.name;
    }
    EXPECT_NE(Refusal(Apis()[0], {{"system", "Be brief."}}), "");
    EXPECT_EQ(Refusal(Apis()[3], {{"system", "Be brief."}}), "");
    EXPECT_NE(Refusal(Apis()[0], {{"instructions", "Be brief."}}), "");
    EXPECT_EQ(Refusal(Apis()[2], {{"instructions", "Be brief."}}), "");
}

TEST_F(Members, ValuesWithoutEffectAreTaken) {
    const Json neutral = Json::parse(R"({"use_beam_search": false, "mirostat": 0,
        "mirostat_mode": 0, "chat_template": "", "documents": [], "structural_tag": null,
        "stop_regex": null, "logits_processors": [], "dynatemp_range": 0.0, "guidance_scale": 1,
        "modalities": ["text"], "adaptive_target": -1.0, "min_keep": 1, "best_of": 1,
        "num_beams": 1, "length_penalty": 1.0, "tfs_z": 1, "separate_reasoning": true,
        "detokenize": true, "penalize_nl": false, "parse_tool_calls": true, "n": 1, "n_cmpl": 1,
        "typical_p": 1, "xtc_probability": 0, "dry_multiplier": 0, "top_n_sigma": -1})");
    for (const ApiRow& api : Apis()) {
        EXPECT_EQ(LeftOut(api, neutral), "") << api.name;
        EXPECT_EQ(LeftOut(api, {{"chat_template", kTemplate}}), "") << api.name;
        const engine::Request plain = Planned(api, {{"seed", 1}});
        Json with_seed = neutral;
        with_seed["seed"] = 1;
        const engine::SamplerOptions s = Planned(api, with_seed).sampler;
        EXPECT_EQ(s.top_n_sigma, 0) << api.name;
        EXPECT_FALSE(s.reorders() || s.dry.on()) << api.name;
        EXPECT_EQ(s.temperature, plain.sampler.temperature) << api.name;
    }
}

TEST_F(Members, OthersAreNamed) {
    for (const ApiRow& api : Apis()) {
        const Json some{{"n_probs", 3}, {"mirostat_tau", 5.0}, {"user", "u"}, {"n_keep", 0}};
        EXPECT_EQ(LeftOut(api, some), "n_probs,mirostat_tau") << api.name;
        AnswerPlan plan;
        ASSERT_FALSE(Plan(api, {{"tempratur", 1}, {"temperature", 1}, {"x", nullptr}}, plan));
        ASSERT_EQ(plan.left.notices.size(), 1u) << api.name;
        EXPECT_NE(plan.left.notices.begin()->find("\"tempratur\""), std::string::npos);
        EXPECT_EQ(plan.left.left_out, "tempratur") << api.name;
        // Each answer names them, and the log once more.
        EXPECT_EQ(LeftOut(api, {{"banned_strings", {"x"}}, {"max_length", 3}, {"zzz", {{"a", 1}}}}),
                  "banned_strings,max_length,zzz");
        EXPECT_EQ(LeftOut(api, {{"zzz", false}, {"yyy", Json::array()}, {"xxx", 0}}), "");
    }
    AnswerPlan plan;
    ASSERT_FALSE(PlanOllamaChat({{"model", "m"},
                                 {"messages", Json::parse(R"([{"role": "user", "content": "a"}])")},
                                 {"keep_alive", 5},
                                 {"colour", "red"}},
                                served_, plan));
    ASSERT_EQ(plan.left.notices.size(), 1u);
    EXPECT_NE(plan.left.notices.begin()->find("colour"), std::string::npos);
}

TEST_F(Members, SamplingIsReadEverywhere) {
    const Json asked = Json::parse(R"({"typical_p": 0.5, "top_n_sigma": 1.5,
        "xtc_probability": 0.25, "xtc_threshold": 0.125, "dry_multiplier": 0.75, "dry_base": 2.5,
        "dry_allowed_length": 3, "dry_penalty_last_n": 100, "dry_sequence_breakers": ["ab", "x"],
        "min_tokens": 2, "stop_token_ids": [65, 66], "allowed_token_ids": [65, 97],
        "bad_words": ["the"], "include_stop_str_in_output": true})");
    for (const ApiRow& api : Apis()) {
        SCOPED_TRACE(api.name);
        const engine::Request request = Planned(api, asked);
        const engine::SamplerOptions& s = request.sampler;
        EXPECT_EQ(s.typical_p, 0.5f);
        EXPECT_EQ(s.top_n_sigma, 1.5f);
        EXPECT_EQ(s.xtc_probability, 0.25f);
        EXPECT_EQ(s.xtc_threshold, 0.125f);
        EXPECT_EQ(s.dry.multiplier, 0.75f);
        EXPECT_EQ(s.dry.base, 2.5f);
        EXPECT_EQ(s.dry.allowed, 3);
        EXPECT_EQ(s.dry.last, 100);
        EXPECT_EQ(s.dry.breakers['x' / 32] >> ('x' % 32) & 1u, 1u);
        EXPECT_EQ(s.dry.breakers['a' / 32] >> ('a' % 32) & 1u, 0u);
        EXPECT_EQ(s.dry.long_breakers, (std::vector<engine::DryOptions::LongBreaker>{{'a', 0}}));
        EXPECT_EQ(s.dry.rests, (std::vector<std::vector<int32_t>>{{'b'}}));
        EXPECT_EQ(request.min_tokens, 2);
        EXPECT_EQ(request.end_tokens, (std::vector<int32_t>{65, 66}));
        EXPECT_EQ(s.allowed[65 / 32] >> (65 % 32) & 1u, 1u);
        EXPECT_EQ(s.allowed[66 / 32] >> (66 % 32) & 1u, 0u);
        ASSERT_FALSE(s.banned.empty());
        EXPECT_EQ(engine_->tokenizer().Decode(s.banned[0]), "the");
        EXPECT_TRUE(request.includes_stop);
    }
}

TEST_F(Members, OtherServersNamesAreRead) {
    const Json asked = Json::parse(R"({"min_new_tokens": 2, "ban_eos_token": true,
        "sampling_seed": 5, "typ_p": 0.5, "no_stop_trim": true, "repeat_penalty": 1.5})");
    for (const ApiRow& api : Apis()) {
        SCOPED_TRACE(api.name);
        const engine::Request request = Planned(api, asked);
        EXPECT_EQ(request.min_tokens, 2);
        EXPECT_TRUE(request.ignore_eos);
        EXPECT_EQ(request.sampler.seed, 5u);
        EXPECT_EQ(request.sampler.typical_p, 0.5f);
        EXPECT_EQ(request.sampler.repeat_penalty, 1.5f);
        EXPECT_TRUE(request.includes_stop);
        EXPECT_EQ(LeftOut(api, asked), "");
        EXPECT_NE(Refusal(api, {{"penalize_nl", false}, {"repeat_penalty", 1.5}}), "");
        EXPECT_EQ(LeftOut(api, {{"parse_tool_calls", false}}), "parse_tool_calls");
        // (Ollama's options are read as Ollama reads them.)
        if (!std::string(api.name).starts_with("ollama")) {
            EXPECT_NE(Refusal(api, {{"min_length", -1}}).find("min_length"), std::string::npos);
            const Json greedy{{"temperature", 1}, {"do_sample", false}};
            EXPECT_EQ(Planned(api, greedy).sampler.temperature, 0);
            EXPECT_TRUE(Planned(api, {{"skip_special_tokens", false}}).show_special);
        }
        if (api.name == std::string("messages")) continue;  // has its own length
        for (const char* name : {"max_tokens", "max_completion_tokens", "max_output_tokens",
                                 "max_new_tokens", "n_predict", "num_predict"}) {
            EXPECT_EQ(Planned(api, {{name, 7}}).max_tokens, 7) << name;
        }
    }
}

TEST_F(Members, MoreNamesAreRead) {
    const Json asked = Json::parse(R"({"random_seed": 5, "rep_pen": 1.5, "rep_pen_range": 7,
        "topP": 0.5, "topK": 3, "nsigma": 1.5, "presencePenalty": 0.5, "frequencyPenalty": 0.25,
        "suppress_tokens": [65, 66]})");
    for (const ApiRow& api : Apis()) {
        SCOPED_TRACE(api.name);
        const engine::Request request = Planned(api, asked);
        const engine::SamplerOptions& s = request.sampler;
        EXPECT_EQ(s.seed, 5u);
        EXPECT_EQ(s.repeat_penalty, 1.5f);
        EXPECT_EQ(s.repeat_last, 7);
        EXPECT_EQ(s.top_p, 0.5f);
        EXPECT_EQ(s.top_k, 3);
        EXPECT_EQ(s.top_n_sigma, 1.5f);
        EXPECT_EQ(s.presence_penalty, 0.5f);
        EXPECT_EQ(s.frequency_penalty, 0.25f);
        EXPECT_EQ(s.banned, (std::vector<std::vector<int32_t>>{{65}, {66}}));
        EXPECT_EQ(LeftOut(api, asked), "");
        for (const char* name : {"stop", "stop_sequences", "stop_sequence", "stop_strings",
                                 "stopping_strings", "stop_words", "stopSequences"}) {
            const engine::Request stops = Planned(api, {{name, {"ab"}}});
            EXPECT_EQ(stops.stop, std::vector<std::string>{"ab"}) << name;
        }
        const std::string refused = Refusal(api, {{"stop_strings", {std::string(2000, 'a')}}});
        EXPECT_NE(refused.find(api.options ? "options.stop" : "stop_strings"), std::string::npos)
            << refused;
        EXPECT_NE(Refusal(api, {{"suppress_tokens", {1 << 20}}}), "");
    }
}

TEST_F(Members, OneAnswerIsOne) {
    for (const ApiRow& api : Apis()) {
        const bool many = api.name == std::string("chat") || api.name == std::string("completions");
        for (const char* name : {"n", "n_cmpl"}) {
            EXPECT_EQ(Refusal(api, {{name, 2}}).empty(), many) << api.name;
        }
        EXPECT_NE(Refusal(api, {{"n", 0}}), "") << api.name;
    }
}

// As in vLLM: requests with another salt, or none, share no cache.
TEST_F(Members, ASaltIsPartOfTheCachesOwner) {
    for (const ApiRow& api : Apis()) {
        SCOPED_TRACE(api.name);
        Json body = api.body;
        const auto tenant = [&](const Json& salt) {
            body["cache_salt"] = salt;
            AnswerPlan plan;
            const auto error = api.plan(body, served_, plan);
            return error ? error->param : plan.choices[0].request.tenant;
        };
        EXPECT_EQ(tenant("abc"), "abc");
        EXPECT_EQ(tenant(nullptr), "");
        for (const Json& wrong : {Json(""), Json(5), Json(std::string(1025, 'a'))}) {
            EXPECT_EQ(tenant(wrong), "cache_salt");
        }
    }
}

TEST_F(Members, NothingMayBeGenerated) {
    for (const char* name : {"max_tokens", "n_predict"}) {
        EXPECT_EQ(Planned(Apis()[4], {{name, 0}}).max_tokens, 0);
    }
}

TEST_F(Members, SummariesHaveALimit) {
    const auto limit = [&](Json body) {
        AnswerPlan plan;
        const auto error = PlanCompaction(body, served_, plan);
        EXPECT_FALSE(error) << error->message;
        return error ? -1 : plan.choices[0].request.max_tokens;
    };
    served_.longest_piece_bytes = 8;  // the request for a summary is longer than the context
    const int64_t most = limit({{"input", "a"}});
    EXPECT_GT(most, 0);
    EXPECT_LE(most, engine_->context() / 4);
    EXPECT_EQ(limit({{"input", "a"}, {"max_output_tokens", 3}}), 3);
    EXPECT_EQ(limit({{"input", "a"}, {"max_output_tokens", 1 << 20}}), most);
    served_.longest_piece_bytes = 1;
}

TEST_F(Members, WrongValuesAreNamed) {
    const Json wrong = Json::parse(R"({"typical_p": 1.5, "xtc_probability": 2,
        "dry_multiplier": "x", "dry_sequence_breakers": [1], "min_tokens": -1,
        "stop_token_ids": ["a"], "allowed_token_ids": [], "bad_words": [""],
        "include_stop_str_in_output": 1})");
    for (const ApiRow& api : Apis()) {
        for (const auto& [name, value] : wrong.items()) {
            if (api.options && name == "typical_p") continue;  // Ollama limits it
            EXPECT_NE(Refusal(api, {{name, value}}).find(name), std::string::npos)
                << api.name << " takes " << name;
        }
        EXPECT_NE(Refusal(api, {{"stop_token_ids", {1 << 20}}}).find("stop_token_ids"),
                  std::string::npos);
        const char* most = api.options ? "num_predict" : "max_tokens";
        if (api.name == std::string("responses")) most = "max_output_tokens";
        EXPECT_NE(Refusal(api, {{"min_tokens", 9}, {most, 8}}).find("more than the 8 tokens"),
                  std::string::npos)
            << api.name;
    }
}

// Each text is read behind the instruction, also where the head's limit cuts texts.
TEST_F(Members, AnInstructionMustFitTheContext) {
    const model_files::EmbeddingHead before = served_.head;
    served_.head.from_file = true;
    served_.head.most_tokens = 16;
    const Json body{{"text_1", "a"}, {"text_2", "b"}, {"instruction", std::string(1 << 20, 'a')}};
    EmbeddingPlan plan;
    const auto error = PlanScore(body, served_, plan);
    served_.head = before;
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, "instruction");
    EXPECT_EQ(error->code, kContextExceeded);
}

// Clients of llama-server and vLLM send -1 if the user chose no seed.
TEST_F(Members, ASeedOfMinusOneIsNewEachTime) {
    for (const ApiRow& api : Apis()) {
        const auto seed = [&](int64_t given) {
            return Planned(api, {{"seed", given}}).sampler.seed;
        };
        EXPECT_EQ(seed(-2), seed(-2)) << api.name;
        EXPECT_NE(seed(-1), seed(-1)) << api.name;
        for (const uint64_t large : {uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX}) {
            EXPECT_EQ(Planned(api, {{"seed", large}}).sampler.seed, large) << api.name;
        }
    }
}

TEST_F(Members, BreakersMayBeTheJsonOfAList) {
    const Json asked{{"dry_multiplier", 1}, {"dry_sequence_breakers", "[\"x\", \"y\"]"}};
    const auto of = Planned(Apis()[0], asked).sampler.dry.breakers;
    EXPECT_EQ(of['y' / 32] >> ('y' % 32) & 1u, 1u);
    EXPECT_EQ(of['\n' / 32] >> ('\n' % 32) & 1u, 0u);
    const auto usual = Planned(Apis()[0], {{"dry_multiplier", 1}}).sampler.dry.breakers;
    for (const char breaker : {'\n', ':', '"', '*'}) {
        EXPECT_EQ(usual[static_cast<size_t>(breaker) / 32] >> (breaker % 32) & 1u, 1u);
    }
}

TEST_F(Members, PromptsAreTruncatedFromTheLeft) {
    const std::string longer(5000, 'a');
    const auto size = [&](const ApiRow& api, Json body, int64_t kept) {
        body["truncate_prompt_tokens"] = kept;
        AnswerPlan plan;
        const auto error = api.plan(body, served_, plan);
        EXPECT_FALSE(error) << api.name << (error ? error->message : "");
        return error ? -1 : std::ssize(plan.choices[0].request.prompt);
    };
    for (const ApiRow& api : Apis()) {
        if (api.options) continue;
        Json body = api.body;
        for (const char* name : {"prompt", "input"}) {
            if (body.contains(name)) body[name] = longer + "z";
        }
        if (body.contains("messages")) body["messages"][0]["content"] = longer + "z";
        EXPECT_EQ(size(api, body, 7), 7) << api.name;
        body[api.name == std::string("responses") ? "max_output_tokens" : "max_tokens"] = 40;
        EXPECT_EQ(size(api, body, -1), engine_->context() - 40) << api.name;
        for (const int64_t wrong : {int64_t{0}, int64_t{-2}, engine_->context() + 1}) {
            body["truncate_prompt_tokens"] = wrong;
            AnswerPlan plan;
            const auto error = api.plan(body, served_, plan);
            ASSERT_TRUE(error) << api.name << wrong;
            EXPECT_EQ(error->param, "truncate_prompt_tokens");
        }
    }
    std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
    KeepLast(tokens, 3, 1);
    EXPECT_EQ(tokens, (std::vector<int32_t>{1, 4, 5}));
    KeepLast(tokens, 1, 1);
    EXPECT_EQ(tokens, (std::vector<int32_t>{5}));
}

TEST_F(Members, TheTemplateGetsItsVariables) {
    for (const ApiRow& api : Apis()) {
        const std::string name = api.name;
        if (name != "chat" && name != "responses" && name != "messages") continue;
        const auto shown = [&](const Json& members) {
            return engine_->tokenizer().Decode(Planned(api, members).prompt);
        };
        EXPECT_EQ(shown(Json::object()), "a") << name;
        EXPECT_EQ(shown({{"enable_thinking", false}}), "a[False]") << name;
        EXPECT_EQ(shown({{"chat_template_kwargs", {{"enable_thinking", true}}}}), "a[True]")
            << name;
    }
}

// vLLM's rule (ChatCompletionRequest.build_chat_params): unless the variables say otherwise, an
// effort turns the reasoning on, and "none" turns it off. Other servers' switches take precedence.
TEST_F(Members, EffortsAndSwitchesOfTheReasoning) {
    const AskedRow cases[] = {
        {R"({"reasoning_effort": "none"})", "a[False]"},
        {R"({"reasoning_effort": "minimal"})", "a[True]"},
        {R"({"reasoning_effort": "high"})", "a[True]"},
        {R"({"reasoning_effort": null})", "a"},
        {R"({"reasoning_effort": "off"})", "a[False]"},
        {R"({"reasoning_effort": "disabled"})", "a[False]"},
        {R"({"reasoning_effort": "auto"})", "a"},
        {R"({"reasoning_effort": "NONE"})", "a[False]"},
        {R"({"reasoning_effort": "Off"})", "a[False]"},
        {R"({"reasoning": {"effort": "DISABLED"}})", "a[False]"},
        {R"({"think": "False"})", "a[False]"},
        {R"({"reasoning_effort": "high", "thinking": "disabled"})", "a[False]"},
        {R"({"reasoning_effort": "high", "think": "off"})", "a[False]"},
        {R"({"reasoning_effort": "auto", "output_config": {"effort": "none"}})", "a[False]"},
        {R"({"reasoning": {"effort": "off"}})", "a[False]"},
        {R"({"reasoning": "off"})", "a[False]"},
        {R"({"reasoning": "on"})", "a[True]"},
        {R"({"thinking": "disabled"})", "a[False]"},
        {R"({"think": "false"})", "a[False]"},
        {R"({"reasoning": {"effort": "none"}})", "a[False]"},
        {R"({"reasoning": {"effort": "low"}})", "a[True]"},
        {R"({"reasoning": {"summary": "auto"}})", "a"},
        {R"({"output_config": {"effort": "none"}})", "a[False]"},
        {R"({"output_config": {"effort": "xhigh"}})", "a[True]"},
        {R"({"thinking": {"type": "disabled"}})", "a[False]"},
        {R"({"thinking": {"type": "enabled"}})", "a[True]"},
        {R"({"thinking": {"type": "adaptive"}, "output_config": {"effort": "none"}})", "a[True]"},
        {R"({"thinking": {"type": "disabled"}, "reasoning_effort": "high"})", "a[False]"},
        {R"({"think": false})", "a[False]"},
        {R"({"think": true})", "a[True]"},
        {R"({"think": "high"})", "a[True]"},
        {R"({"reasoning": {"enabled": false}})", "a[False]"},
        {R"({"enable_thinking": true, "reasoning_effort": "none"})", "a[True]"},
        {R"({"chat_template_kwargs": {"enable_thinking": true}, "reasoning_effort": "none"})",
         "a[True]"},
        {R"({"chat_template_kwargs": {"enable_thinking": false}, "think": true})", "a[False]"},
        {R"({"chat_template_kwargs": {"reasoning_effort": "none"}})", "a"}};
    Expect(cases);
    for (const size_t at : {0, 2, 3}) {
        const ApiRow& api = Apis()[at];
        EXPECT_NE(Refusal(api, {{"thinking", {{"type", "often"}}}}).find("thinking.type"),
                  std::string::npos);
    }
    served_.template_variables = {{"enable_thinking", false}};
    EXPECT_EQ(engine_->tokenizer().Decode(Planned(Apis()[0], {{"reasoning_effort", "low"}}).prompt),
              "a[True]");
}

TEST_F(Members, BudgetsSwitchTheReasoning) {
    const AskedRow cases[] = {
        {R"({"thinking_budget": 0})", "a[False]"},
        {R"({"reasoning_budget": 0})", "a[False]"},
        {R"({"thinking_budget": "auto"})", "a"},
        {R"({"thinking_budget": "dynamic"})", "a"},
        {R"({"thinking_budget": "low"})", "a[True]"},
        {R"({"reasoning_budget": "NONE"})", "a[False]"},
        {R"({"reasoning": {"max_tokens": "auto"}})", "a"},
        {R"({"thinking": {"budget_tokens": "off"}})", "a[False]"},
        {R"({"enableThinking": false})", "a[False]"},
        {R"({"enable_reasoning": true})", "a[True]"},
        {R"({"reasoning": {"max_tokens": 0}})", "a[False]"},
        {R"({"reasoning": {"max_tokens": 9, "enabled": false}})", "a[False]"},
        {R"({"reasoning": {"max_tokens": 9, "effort": "none"}})", "a[False]"},
        {R"({"reasoning": {"max_tokens": 9, "exclude": true}})", "a[True]"},
        {R"({"reasoning": {"max_tokens": 9}, "reasoning_effort": "none"})", "a[False]"},
        {R"({"reasoning": {"max_tokens": 9}, "output_config": {"effort": "none"}})", "a[False]"},
        {R"({"reasoning": {"max_tokens": 9}, "thinking_token_budget": 0})", "a[False]"},
        {R"({"thinking_token_budget": 0, "reasoning_effort": "high"})", "a[False]"}};
    Expect(cases);
}

// The first effort has an effect; another one is named.
TEST_F(Members, ASecondEffortIsNamed) {
    for (const size_t at : {0, 2, 3}) {
        const ApiRow& api = Apis()[at];
        EXPECT_NE(Refusal(api, {{"thinking_budget", "9"}}).find("thinking_budget"),
                  std::string::npos);
        EXPECT_EQ(LeftOut(api, {{"reasoning_effort", "high"}, {"think", "low"}}), "think");
        EXPECT_EQ(LeftOut(api, {{"reasoning_effort", "high"}, {"reasoning_budget", "low"}}),
                  "reasoning_budget");
        EXPECT_EQ(LeftOut(api, {{"reasoning_effort", "high"}, {"think", "HIGH"}}), "");
    }
}

// A request's switch takes precedence over a server's variable, whichever name the template reads.
TEST_F(Members, SwitchesComeBeforeTheServersVariables) {
    Use("{% for m in messages %}{{ m.content }}{% endfor %}{{ 'on' if thinking else 'off' }}");
    for (const bool server : {false, true}) {
        served_.template_variables = {{"thinking", server}};
        const auto shown = [&](const char* asked) {
            return engine_->tokenizer().Decode(Planned(Apis()[0], Json::parse(asked)).prompt);
        };
        EXPECT_EQ(shown("{}"), server ? "aon" : "aoff");
        for (const char* off : {R"({"enable_thinking": false})", R"({"reasoning_effort": "none"})",
                                R"({"think": false})", R"({"thinking": {"type": "disabled"}})",
                                R"({"chat_template_kwargs": {"enable_thinking": false}})"}) {
            EXPECT_EQ(shown(off), "aoff") << server << off;
        }
        EXPECT_EQ(shown(R"({"reasoning_effort": "high"})"), "aon") << server;
        EXPECT_EQ(shown(R"({"think": true})"), "aon") << server;
    }
}

TEST_F(Members, ASwitchOfReasoningIsNoSmallValue) {
    for (const ApiRow& api : Apis()) {
        EXPECT_EQ(LeftOut(api, {{"show_reasoning", false}, {"thinking_mode", 0}, {"a", 0}}),
                  "show_reasoning,thinking_mode");
        EXPECT_EQ(LeftOut(api, {{"web_search_options", Json::object()}, {"enable_search", false}}),
                  "web_search_options");
        EXPECT_EQ(LeftOut(api, {{"reasoning_in_content", false}}), "");
    }
    EXPECT_EQ(LeftOut(Apis()[1], {{"thinking_budget", 0}}), "thinking_budget");
}

// The template decides, not the model's name: DeepSeek R1's and MiniMax M2's always reason.
TEST_F(Members, ASwitchThatTheTemplateDoesNotObeyIsNamed) {
    const std::pair<std::string, bool> templates[] = {{"<think>", true},
                                                      {"", false},
                                                      {"{{ thinking }}", true},
                                                      {"{{ reasoning_effort }}", true},
                                                      {"", true}};  // may reason by itself
    const struct {
        const char* asked;
        std::array<const char*, 5> left_out;  // by template
    } cases[] = {
        {R"({"thinking": {"type": "disabled"}})",
         {"thinking.type", "", "", "thinking.type", "thinking.type"}},
        {R"({"thinking": {"type": "enabled"}})", {"", "thinking.type", "", "", "thinking.type"}},
        {R"({"reasoning_effort": "high"})",
         {"reasoning_effort", "reasoning_effort", "", "", "reasoning_effort"}},
        {R"({"reasoning": {"effort": "none"}})",
         {"reasoning.effort", "", "", "", "reasoning.effort"}},
        {R"({"reasoning": {"max_tokens": 9}})",
         {"", "reasoning.max_tokens", "", "", "reasoning.max_tokens"}},
        {R"({"reasoning": "off"})", {"reasoning", "", "", "", "reasoning"}},
        {R"({"enable_reasoning": false})",
         {"enable_reasoning", "", "", "enable_reasoning", "enable_reasoning"}},
        {R"({"thinking_budget": 0})", {"", "", "", "", ""}}};
    for (size_t i = 0; i < std::size(templates); ++i) {
        Use("{% for m in messages %}{{ m.content }}{% endfor %}" + templates[i].first);
        served_.card.thinking = templates[i].second;
        for (const size_t api : {0, 2, 3}) {
            for (const auto& [asked, left_out] : cases) {
                EXPECT_EQ(LeftOut(Apis()[api], Json::parse(asked)), left_out[i]) << i << asked;
            }
        }
        for (const size_t api : {5, 6}) {
            Json body = Apis()[api].body;
            body["think"] = false;
            AnswerPlan plan;
            ASSERT_FALSE(Apis()[api].plan(body, served_, plan));
            EXPECT_EQ(plan.left.left_out, i == 0 || i >= 3 ? "think" : "") << api << i;
        }
    }
}

// Mistral's templates raise an exception for other efforts, and Claude Code sends one with each
// request.
TEST_F(Members, AnEffortThatTheTemplateRejectsIsReplaced) {
    Use("{% set e = reasoning_effort or 'none' %}{% if e not in ['none', 'high'] %}"
        "{{ raise_exception('no such effort') }}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}[{{ e }}]");
    EXPECT_EQ(served_.forms.efforts, (std::vector<std::string>{"none", "high"}));
    const struct {
        const char *asked, *shown, *left_out;
    } cases[] = {{R"({})", "a[none]", ""},
                 {R"({"reasoning_effort": "none"})", "a[none]", ""},
                 {R"({"reasoning_effort": "minimal"})", "a[none]", "reasoning_effort"},
                 {R"({"output_config": {"effort": "low"}})", "a[high]", "output_config.effort"},
                 {R"({"reasoning": {"effort": "medium"}})", "a[high]", "reasoning.effort"},
                 {R"({"think": "max"})", "a[high]", "think"},
                 {R"({"output_config": {"effort": "high"}})", "a[high]", ""},
                 {R"({"thinking": {"type": "enabled"}})", "a[high]", ""},
                 {R"({"thinking": {"type": "disabled"}})", "a[none]", ""},
                 {R"({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}})",
                  "a[none]", "output_config.effort"},
                 {R"({"enable_thinking": false, "reasoning_effort": "medium"})", "a[none]",
                  "reasoning_effort"},
                 {R"({"enable_thinking": true, "reasoning_effort": "none"})", "a[none]", ""}};
    for (const ApiRow& api : Apis()) {
        const std::string name = api.name;
        if (name != "chat" && name != "responses" && name != "messages") continue;
        for (const auto& [asked, shown, left_out] : cases) {
            const Json members = Json::parse(asked);
            EXPECT_EQ(engine_->tokenizer().Decode(Planned(api, members).prompt), shown)
                << name << asked;
            EXPECT_EQ(LeftOut(api, members), left_out) << name << asked;
        }
        EXPECT_NE(Refusal(api, {{"reasoning_effort", "odd"}}), "");
    }
    EXPECT_EQ(LeftOut(Apis()[0], {{"chat_template_kwargs", {{"reasoning_effort", "medium"}}}}),
              "chat_template_kwargs.reasoning_effort");
    EXPECT_EQ(LeftOut(Apis()[0], {{"chat_template_kwargs", {{"reasoning_effort", "HIGH"}}}}), "");
    EXPECT_EQ(LeftOut(Apis()[0], Json::parse(R"({"reasoning_effort": "high",
                  "chat_template_kwargs": {"reasoning_effort": "none"}})")),
              "chat_template_kwargs.reasoning_effort");
    Json input = Json::parse(R"([{"type": "configuration_update", "reasoning": {"effort": "low"}},
                                 {"role": "user", "content": "a"}])");
    EXPECT_EQ(LeftOut(Apis()[2], {{"input", input}, {"reasoning", {{"effort", "medium"}}}}),
              "input[0].reasoning.effort");
    served_.template_variables = {{"reasoning_effort", "high"}};
    EXPECT_EQ(engine_->tokenizer().Decode(Planned(Apis()[0], {{"think", false}}).prompt),
              "a[none]");
    // The server's own effort is fitted at its start.
    for (const auto& [given, used] : {std::pair("medium", "high"),
                                      {"minimal", "none"},
                                      {"HIGH", "high"},
                                      {"off", "none"},
                                      {"on", "high"}}) {
        served_.template_variables = {{"reasoning_effort", given}};
        FitServersEffort(served_);
        EXPECT_EQ(served_.template_variables["reasoning_effort"], used) << given;
        for (const auto& [asked, shown] : {std::pair("{}", used),
                                           {R"({"think": true})", "high"},
                                           {R"({"think": false})", "none"}}) {
            const engine::Request request = Planned(Apis()[0], Json::parse(asked));
            EXPECT_EQ(engine_->tokenizer().Decode(request.prompt), fmt::format("a[{}]", shown))
                << given << asked;
            EXPECT_EQ(LeftOut(Apis()[0], Json::parse(asked)), "") << given << asked;
        }
    }
    for (const Json& given : {Json("auto"), Json("odd")}) {
        served_.template_variables = {{"reasoning_effort", given}};
        FitServersEffort(served_);
        EXPECT_FALSE(served_.template_variables.contains("reasoning_effort")) << given;
    }
}

TEST_F(Members, InnerMembersOfTheReasoningAreNamed) {
    for (const ApiRow& api : Apis()) {
        const std::string name = api.name;
        if (name != "chat" && name != "responses" && name != "messages") continue;
        const auto left = [&](const char* asked) { return LeftOut(api, Json::parse(asked)); };
        EXPECT_EQ(left(R"({"thinking": {"display": "omitted", "clear_thinking": false}})"),
                  "thinking.display,thinking.clear_thinking");
        EXPECT_EQ(left(R"({"reasoning": {"efort": "none", "x": null, "y": false}})"),
                  "reasoning.efort");
        EXPECT_EQ(left(R"({"output_config": {"task_budget": {"total": 5}}})"),
                  "output_config.task_budget");
        EXPECT_EQ(left(R"({"output_config": {"format": {"type": "json_object"}}})"),
                  name == "messages" ? "" : "output_config.format");
        for (const bool hides : {false, true}) {
            AnswerPlan plan;
            ASSERT_FALSE(Plan(api, {{"reasoning", {{"exclude", hides}}}}, plan)) << name;
            EXPECT_EQ(plan.hides_reasoning, hides) << name;
            EXPECT_EQ(plan.left.left_out, "") << name;
        }
    }
}

TEST_F(Members, ToolsThatAreLeftOutAreNamed) {
    const Json openai = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    EXPECT_EQ(LeftOut(Apis()[3], {{"tools", openai}}), "tools");
    const Json search = Json::parse(R"([{"type": "web_search"}, {"type": "web_search"}])");
    EXPECT_EQ(LeftOut(Apis()[2], {{"tools", search}}), "tools");
    EXPECT_EQ(LeftOut(Apis()[2], {{"text", {{"verbosity", "low"}}}}), "text.verbosity");
}

// Routes whose answer is a prompt name what has no effect, too.
TEST_F(Members, RoutesWithoutAnAnswerNameThem) {
    const Json messages = Apis()[0].body["messages"];
    const struct {
        std::optional<ApiError> (*plan)(const Json&, const Served&, AnswerPlan&);
        Json body;
    } routes[] = {{ApplyTemplate, {{"messages", messages}}},
                  {CountMessageTokens, {{"messages", messages}}},
                  {PlanTokenize, {{"messages", messages}}},
                  {PlanTokenize, {{"content", "a"}}},
                  {PlanTokenize, {{"prompt", "a"}}}};
    for (const auto& [route, whole] : routes) {
        Json body = whole;
        body.update({{"tempratur", 1}, {"cache_salt", "s"}, {"user", "u"}});
        AnswerPlan plan;
        ASSERT_FALSE(route(body, served_, plan)) << body;
        EXPECT_EQ(plan.left.left_out, "tempratur,cache_salt") << body;
        EXPECT_TRUE(plan.left.notices.empty()) << body;
        EXPECT_NE(plan.reply, "") << body;
    }
}

TEST_F(Members, StopsOfTwoNames) {
    const Json two{{"stop", {"x"}}, {"stop_sequences", {"y"}}};
    EXPECT_EQ(Planned(Apis()[3], two).stop, std::vector<std::string>{"y"});
    EXPECT_EQ(LeftOut(Apis()[3], two), "stop");
    EXPECT_EQ(LeftOut(Apis()[3], {{"stop", Json::array()}, {"stop_sequences", {"y"}}}), "");
    EXPECT_EQ(LeftOut(Apis()[0], two), "stop_sequences");
}

TEST_F(Members, EmbeddingsHaveASalt) {
    const auto poolings = std::exchange(served_.head.poolings, {});  // the engine generates
    for (const auto& [plan_of, name] :
         {std::pair(&PlanOllamaEmbed, "input"), std::pair(&PlanOllamaEmbeddings, "prompt")}) {
        Json body{{"model", "m"}, {name, "a"}, {"cache_salt", "abc"}, {"colour", "red"}};
        EmbeddingPlan plan;
        const auto error = plan_of(body, served_, plan);
        ASSERT_FALSE(error) << error->message;
        EXPECT_EQ(plan.requests[0].tenant, "abc") << name;
        EXPECT_EQ(plan.left.left_out, "colour") << name;
        body["cache_salt"] = "";
        const auto refused = plan_of(body, served_, plan);
        EXPECT_TRUE(refused && refused->param == "cache_salt") << name;
    }
    served_.head.poolings = poolings;
}

TEST_F(Members, ConstraintsOfOtherServers) {
    const auto constrained = [&](const Json& members) {
        const engine::Request request = Planned(Apis()[0], members);
        if (!request.matcher) return std::string("free");
        std::vector<uint32_t> mask(20);
        EXPECT_TRUE(request.matcher->Allowed(mask).ok());
        std::string first;
        for (int letter = 32; letter < 127; ++letter) {
            if (mask[static_cast<size_t>(letter) / 32] >> (letter % 32) & 1u) {
                first += static_cast<char>(letter);
            }
        }
        return first;
    };
    EXPECT_EQ(constrained({{"regex", "[xy]z"}}), "xy");
    EXPECT_EQ(constrained({{"ebnf", "root ::= \"q\" [0-9]"}}), "q");
    EXPECT_EQ(constrained({{"ebnf", ""}}), "free");
    EXPECT_EQ(constrained({{"structured_outputs", {{"json_object", true}}}}), "{");
    EXPECT_EQ(constrained({{"structured_outputs", {{"json_object", false}}}}), "free");
    EXPECT_EQ(constrained({{"structured_outputs", Json::object()}}), "free");
    EXPECT_EQ(constrained({{"guided_json_object", true}}), "{");
    EXPECT_EQ(constrained({{"regex", "b"}, {"guided_regex", "b"}}), "b");
    EXPECT_EQ(constrained({{"json_mode", true}}), "{");
    EXPECT_EQ(constrained({{"json_mode", false}, {"format", ""}}), "free");
    EXPECT_EQ(constrained({{"format", "json"}}), "{");
    EXPECT_EQ(constrained({{"format", {{"type", "boolean"}}}}), "ft");
    EXPECT_EQ(constrained({{"grammar_string", "root ::= \"q\" [0-9]"}}), "q");
    const auto format = [&](const char* json) {
        return constrained({{"response_format", Json::parse(json)}});
    };
    EXPECT_EQ(format(R"({"type": "regex", "value": "[xy]z"})"), "xy");
    EXPECT_EQ(format(R"({"type": "json_object", "value": {"type": "boolean"}})"), "ft");
    EXPECT_EQ(format(R"({"type": "json", "value": {"type": "boolean"}})"), "ft");
    EXPECT_EQ(format(R"({"type": "json_schema", "value": {"name": "x",
                         "schema": {"type": "boolean"}}})"),
              "ft");
    for (const char* refused :
         {R"({"response_format": {"type": "regex"}})",
          R"({"response_format": {"type": "grammar"}})",
          R"({"response_format": {"type": "regex", "value": ""}})",
          R"({"response_format": {"type": "json_schema", "name": "x"}})",
          R"({"structured_outputs": {"structural_tag": "{}"}})",
          R"({"structured_outputs": {"choice": []}})", R"({"guided_choice": []})",
          R"({"structured_outputs": {"schema": {}}})",
          R"({"regex": "a", "ebnf": "root ::= \"a\""})",
          R"({"response_format": {"type": "structural_tag"}})",
          R"({"structured_outputs": {"regex": "a", "choice": ["a"]}})"}) {
        EXPECT_NE(Refusal(Apis()[0], Json::parse(refused)), "") << refused;
    }
}

TEST_F(Members, FormatsAreNamedAsSent) {
    const Json schema{{"type", "json_schema"}};
    EXPECT_NE(Refusal(Apis()[3], {{"output_config", {{"format", schema}}}})
                  .find("'output_config.format.schema' is missing"),
              std::string::npos);
    EXPECT_NE(Refusal(Apis()[2], {{"text", {{"format", {{"type", "regex"}}}}}})
                  .find("'text.format.regex' is missing"),
              std::string::npos);
}

// The name is text of the request.
TEST_F(Members, UnknownNamesAreSafeInTheLog) {
    AnswerPlan plan;
    Json many{{std::string("\x1b[31m\n") + std::string(5000, 'x'), 1}};
    ASSERT_FALSE(Plan(Apis()[0], many, plan));
    ASSERT_EQ(plan.left.notices.size(), 1u);
    const std::string& line = *plan.left.notices.begin();
    EXPECT_LT(line.size(), 200u);
    EXPECT_TRUE(std::ranges::all_of(line, [](char c) { return c >= ' ' && c < '\x7f'; })) << line;
    for (int i = 0; i < 1000; ++i) many[std::to_string(i)] = 1;
    AnswerPlan next;
    ASSERT_FALSE(Plan(Apis()[0], many, next));
    EXPECT_LE(next.left.notices.size(), 20u);
}

// The parts that each choice of a request repeats are checked before copies are made.
TEST_F(Members, CopiesAreMadeOfWhatFits) {
    const auto context = static_cast<size_t>(engine_->context());
    const std::string text(3 * context, '7');  // a token each
    const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
    Json prompts = Json::array();
    for (int i = 0; i < 64; ++i) prompts.push_back("a");
    struct Row {
        const ApiRow* api;
        Json members;
        const char* code;
    };
    served_.longest_piece_bytes = 100;  // a bound of bytes does not see it
    Json words = Json::array();
    for (int i = 0; i < 5000; ++i) words.push_back(std::to_string(i) + std::string(80, '7'));
    const Row rows[] = {
        {&Apis()[0], {{"messages", messages}, {"n", 64}}, kContextExceeded},
        {&Apis()[1], {{"prompt", text}, {"n", 64}}, kContextExceeded},
        {&Apis()[1], {{"prompt", std::vector<int>(3 * context, 97)}, {"n", 64}}, kContextExceeded},
        {&Apis()[0], {{"bad_words", words}, {"n", 64}}, "invalid_value"},
        {&Apis()[1], {{"bad_words", words}, {"prompt", prompts}}, "invalid_value"}};
    for (const Row& row : rows) {
        AnswerPlan plan;
        const auto error = Plan(*row.api, row.members, plan);
        ASSERT_TRUE(error) << row.api->name;
        EXPECT_EQ(error->status, 400);
        EXPECT_EQ(error->code, row.code) << error->message;
        EXPECT_TRUE(plan.choices.empty());
    }
    words = Json::array();
    for (int i = 0; i < 2000; ++i) words.push_back(std::string(1000, '7'));
    EXPECT_NE(Refusal(Apis()[0], {{"bad_words", words}}).find("bad_words"), std::string::npos);
    served_.longest_piece_bytes = 1;
}

}  // namespace
}  // namespace weft::serve
