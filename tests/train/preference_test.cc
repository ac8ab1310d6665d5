// Preferences: from records to answers with roles, and the derivatives of each loss.
#include "train/data/preference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support/paths.h"
#include "train/data/messages.h"
#include "train/data/packed_ids.h"
#include "train/data_case.h"
#include "train/preference_loss.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

constexpr LossKind kPreferences[] = {LossKind::kDpo, LossKind::kIpo, LossKind::kOrpo,
                                     LossKind::kKto, LossKind::kSimpo};

// ---- Records ------------------------------------------------------------------------------------

// The answers with their roles ('+', '-'), one after another.
std::string AnswersOf(std::string_view line, LossKind loss = LossKind::kDpo) {
    const auto object = ParseRecordJson(line);
    if (!object.ok()) return object.error().message;
    const auto record = PreferenceOfObject(*object, loss);
    if (!record.ok()) return record.error().message;
    const auto sample = EncodePreference(ByteEncoder(), loss, *record, nullptr);
    if (!sample.ok()) return sample.error().message;
    std::string text;
    size_t role = 0;
    for (const Sample& each : SplitPacked(*sample)) {
        text += (sample->roles[role++] == SampleRole::kChosen ? "+" : "-") + Marked(each);
    }
    return text;
}

TEST(Preference, Texts) {
    const std::string answers = "+Sky?[Blue.<|endoftext|>]-Sky?[Green.<|endoftext|>]";
    EXPECT_EQ(AnswersOf(R"({"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."})"), answers);
    EXPECT_EQ(AnswersOf(R"({"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green.",
                            "score_chosen": 4.5, "messages": [], "margin": 1})"),
              answers);
    // Without a prompt: what both begin with, without a blank at its end.
    EXPECT_EQ(AnswersOf(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})"),
              "+The sky is[ blue.<|endoftext|>]-The sky is[ green.<|endoftext|>]");
    // "é" and "è" begin with the same byte.
    EXPECT_EQ(AnswersOf(R"({"chosen": "xé", "rejected": "xè"})"),
              "+x[é<|endoftext|>]-x[è<|endoftext|>]");
}

TEST(Preference, Conversations) {
    const std::string answers =
        "+<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n[Blue.<|im_end|>]\n"
        "-<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n[Green.<|im_end|>]\n";
    const std::string user = R"({"role": "user", "content": "Sky?"})";
    const std::string chosen = R"({"role": "assistant", "content": "Blue."})";
    const std::string rejected = R"({"from": "gpt", "value": "Green."})";
    EXPECT_EQ(AnswersOf("{\"prompt\": [" + user + "], \"chosen\": [" + chosen +
                        "], \"rejected\": [" + rejected + "]}"),
              answers);
    const std::string whole =
        "\"chosen\": [" + user + "," + chosen + "], \"rejected\": [" + user + "," + rejected + "]}";
    EXPECT_EQ(AnswersOf("{" + whole), answers);
    EXPECT_EQ(AnswersOf("{\"prompt\": \"Sky?\"," + whole), answers);
    // A table's texts of JSON, on one line or several.
    for (const char* open : {"[", " [", "[\n  "}) {
        OrderedJson texts{{"prompt", open + user + "]"},
                          {"chosen", open + chosen + "]"},
                          {"rejected", open + rejected + "]"}};
        ASSERT_TRUE(ReadListsOfTable(texts).ok());
        EXPECT_EQ(AnswersOf(texts.dump()), answers) << texts;
    }
    OrderedJson mixed{{"chosen", R"([{"role": "user", "content": "A"}])"},
                      {"rejected", R"([{"role": "admin", "content": "A"}])"}};
    const OrderedJson before = mixed;
    ASSERT_TRUE(ReadListsOfTable(mixed).ok());
    EXPECT_EQ(mixed, before);  // both are texts
    EXPECT_EQ(AnswersOf(R"({"prompt": "a", "chosen": " [b", "rejected": "[1]"})"),
              "+a[ [b<|endoftext|>]-a[[1]<|endoftext|>]");
    EXPECT_EQ(AnswersOf(R"({"prompt": "a", "chosen": "[{\"n\": 1}]", "rejected": "[{b"})"),
              "+a[[{\"n\": 1}]<|endoftext|>]-a[[{b<|endoftext|>]");
    EXPECT_EQ(AnswersOf("{\"chosen\": [" + chosen + "], \"rejected\": [" + rejected + "]}"),
              "no 'prompt', and 'chosen' and 'rejected' have 0 first messages in common, of 1 and "
              "1; expected the same first messages in both, and then other answers");
}

TEST(Preference, SingleAnswers) {
    EXPECT_EQ(AnswersOf(R"({"prompt": "a", "completion": "b", "label": true})", LossKind::kKto),
              "+a[b<|endoftext|>]");
    EXPECT_EQ(AnswersOf(R"({"prompt": "a", "response": "b", "kto_tag": "False"})", LossKind::kKto),
              "-a[b<|endoftext|>]");
    EXPECT_EQ(AnswersOf(R"({"prompt": "a", "chosen": "b", "rejected": "c"})", LossKind::kKto),
              "+a[b<|endoftext|>]-a[c<|endoftext|>]");
}

TEST(Preference, OrpoLearnsThePromptOfTheChosenAnswer) {
    EXPECT_EQ(AnswersOf(R"({"prompt": "ab", "chosen": "c", "rejected": "d"})", LossKind::kOrpo),
              "+[abc<|endoftext|>]-ab[d<|endoftext|>]");
}

TEST(Preference, RefusesOtherMembers) {
    const auto refused = [](std::string_view text, LossKind loss, std::string_view part) {
        const std::string said = AnswersOf(text, loss);
        EXPECT_NE(said.find(part), said.npos) << said;
    };
    refused("[]", LossKind::kDpo, "expected an object with 'chosen' and 'rejected'");
    refused(R"({"prompt": "a", "completion": "b", "label": true})", LossKind::kDpo,
            "no 'chosen' in the record; --loss dpo expects 'chosen' and 'rejected'");
    refused(R"({"prompt": "a", "label": true})", LossKind::kKto, "no 'completion'");
    refused(R"({"prompt": {"a": 1}, "chosen": "b", "rejected": "c"})", LossKind::kDpo,
            "'prompt' is object; expected a string or a list of messages");
    refused(R"({"prompt": "a", "chosen": ["b"], "rejected": "c"})", LossKind::kDpo,
            "'chosen' is a list of other values");
    refused(R"({"prompt": "a", "chosen": [], "rejected": "c"})", LossKind::kDpo,
            "'chosen' is an empty list");
    refused(R"({"chosen": "a", "rejected": "a"})", LossKind::kDpo, "are equal");
    refused(R"({"chosen": "a", "rejected": [{"role": "user", "content": "a"}]})", LossKind::kDpo,
            "expected the same form");
}

// The tokens that a loss learns from a record, or the error.
std::string TokensOf(const OrderedJson& record, LossKind loss) {
    Result<Sample> sample = Sample();
    if (loss == LossKind::kClassification || loss == LossKind::kContrastive) {
        sample = EncodeTexts(ByteEncoder(), loss, {}, record);
    } else if (loss == LossKind::kGrpo) {
        sample = EncodePrompt(ByteEncoder(), record);
    } else {
        return AnswersOf(record.dump(), loss);
    }
    return sample.ok() ? Marked(*sample) : "error: " + sample.error().message;
}

// A number is a text in each member and with each loss.
TEST(Preference, NumbersInThePlaceOfTexts) {
    const std::pair<LossKind, const char*> records[] = {
        {LossKind::kDpo, R"({"prompt": "p", "chosen": "a", "rejected": "b"})"},
        {LossKind::kReward, R"({"prompt": "p", "chosen": "a", "rejected": "b"})"},
        {LossKind::kKto, R"({"prompt": "p", "completion": "a", "label": true})"},
        {LossKind::kGrpo, R"({"prompt": "p"})"},
        {LossKind::kClassification, R"({"text": "t", "label": 1})"},
        {LossKind::kClassification, R"({"sentence": ["t"], "label": 1})"},
        {LossKind::kContrastive, R"({"anchor": "a", "positive": "p", "negative": "n"})"},
        {LossKind::kContrastive, R"({"query": "q", "pos": ["p"], "neg": ["m", "n"]})"},
        {LossKind::kContrastive, R"({"question": "q", "answer": "a", "negative_1": "n"})"}};
    for (const auto& [loss, text] : records) {
        const OrderedJson record = OrderedJson::parse(text);
        const OrderedJson members = record.flatten();
        for (const auto& [path, value] : members.items()) {
            if (!value.is_string()) continue;
            OrderedJson number = record, digits = record;
            number[OrderedJson::json_pointer(path)] = 42;
            digits[OrderedJson::json_pointer(path)] = "42";
            const std::string learned = TokensOf(digits, loss);
            EXPECT_NE(learned.find("42"), learned.npos) << digits << learned;
            EXPECT_EQ(TokensOf(number, loss), learned) << number;
            number[OrderedJson::json_pointer(path)] = 1e30;
            const std::string said = TokensOf(number, loss);
            EXPECT_NE(said.find("' is a number of too many digits; expected"), said.npos) << said;
        }
    }
}

// Reads a record as each loss does.
void ReadAll(const OrderedJson& record) {
    const auto tokens = RecordOfObject(record);
    if (tokens.ok()) (void)ByteEncoder().Encode(*tokens).ok();
    for (const LossKind loss : kPreferences) {
        const auto made = PreferenceOfObject(record, loss);
        if (made.ok()) (void)EncodePreference(ByteEncoder(), loss, *made, nullptr).ok();
    }
    const auto pair = PreferenceOfObject(record, LossKind::kReward);
    if (pair.ok()) (void)EncodePreference(ByteEncoder(), LossKind::kReward, *pair, nullptr).ok();
    if (EncodePrompt(ByteEncoder(), record).ok()) {
        (void)EncodeJudged(ByteEncoder(), record, "Blue.").ok();
    }
    (void)MarginOf(record).ok();
    (void)TextsOf(record).ok();
}

// A member of another type, at each depth, in a list and in the text of a list, is an error of the
// record: it never ends the program.
TEST(Preference, MembersOfOtherTypesAreErrors) {
    const char* const records[] = {
        R"({"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green.", "margin": 1})",
        R"({"prompt": "x", "chosen": [{"role": "user", "content": "Sky?"},
            {"role": "assistant", "content": "Blue."}], "rejected": [{"role": "user", "content":
            "Sky?"}, {"role": "assistant", "content": "Green."}], "tools": [{"type": "function",
            "function": {"name": "f", "parameters": {"type": "object"}}}]})",
        R"({"prompt": [{"role": "user", "content": [{"type": "text", "text": "Sky?"}]}],
            "completion": [{"role": "assistant", "content": null, "reasoning_content": "T",
            "tool_calls": [{"type": "function", "id": "i", "function": {"name": "f", "arguments":
            {"a": 1}}}]}], "label": true})",
        R"({"messages": [{"from": "human", "value": "Sky?"}, {"from": "function_call", "value":
            "{\"name\": \"f\", \"arguments\": {}}"}, {"from": "observation", "value": "R"},
            {"from": "gpt", "value": "Blue.", "weight": 1}]})",
        R"({"anchor": "a", "positive": "b", "negative": "c", "text": "t", "label": 1})"};
    const OrderedJson others[] = {nullptr,
                                  true,
                                  -1.5,
                                  "",
                                  "text",
                                  "[{\"role\": 1}, null]",
                                  OrderedJson::array(),
                                  {1, nullptr},
                                  OrderedJson::object(),
                                  {{"role", nullptr}}};
    for (const char* text : records) {
        const OrderedJson record = OrderedJson::parse(text);
        ReadAll(record);
        const OrderedJson flat = record.flatten();
        std::set<std::string> seen;
        for (const auto& [path, value] : flat.items()) {
            // The value itself, and each object or list that contains it.
            for (auto at = OrderedJson::json_pointer(path);
                 !at.empty() && seen.insert(at.to_string()).second; at = at.parent_pointer()) {
                for (const OrderedJson& other : others) {
                    OrderedJson changed = record;
                    changed[at] = other;
                    ReadAll(changed);
                    for (auto& [name, member] : changed.items()) {
                        if (member.is_array()) member = member.dump();
                    }
                    ReadAll(changed);
                }
            }
        }
    }
}

TEST(Preference, MismatchedAnswersAreThoseOfTheRecordBefore) {
    const test::TempDir folder;
    const std::string path =
        WriteText(folder, "data.jsonl",
                  "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 1}\n"
                  "{\"prompt\": \"c\", \"completion\": \"d\", \"label\": 0}\n");
    DataOptions options;
    options.specs = {path};
    options.loss = LossKind::kKto;
    const auto set = Must(DataSet::Open(options, ByteEncoder()));
    const Sample sample = Must(set->Read(Part::kTrain, 0));
    const std::vector<SampleRole> roles = {SampleRole::kChosen, SampleRole::kMismatched};
    EXPECT_EQ(sample.roles, roles);
    EXPECT_EQ(Marked(SplitPacked(sample)[1]), "a[d<|endoftext|>]");
}

// A bad record does not affect its neighbors: with --skip-bad, only bad records are omitted.
TEST(Preference, MismatchedAnswersPassOverBadRecords) {
    const test::TempDir folder;
    const auto open = [&](const std::string& text) {
        DataOptions options;
        options.specs = {WriteText(folder, "data.jsonl", text)};
        options.loss = LossKind::kKto;
        return Must(DataSet::Open(options, ByteEncoder()));
    };
    const auto answer = [](char c) {
        return fmt::format(R"({{"prompt": "p", "completion": "{}", "label": 1}})", c) + "\n";
    };
    const std::string bad = "{\"prompt\": \"p\"}\n",
                      role = R"({"prompt": "p", "completion": [{"role": "x"}], "label": 1})";
    const auto set = open(answer('a') + bad + answer('b') + role + "\n" + bad);
    const auto mismatched = [&](uint64_t index) {
        return Marked(SplitPacked(Must(set->Read(Part::kTrain, index)))[1]);
    };
    EXPECT_EQ(mismatched(0), "p[b<|endoftext|>]");
    EXPECT_EQ(mismatched(2), "p[a<|endoftext|>]");
    for (const uint64_t index : {1, 3, 4}) {
        const auto sample = set->Read(Part::kTrain, index);
        ASSERT_FALSE(sample.ok());
        const std::string place = fmt::format("line {}: ", index + 1);
        EXPECT_NE(sample.error().message.find(place), std::string::npos) << sample.error().message;
    }
    const auto alone = open(bad + answer('a'))->Read(Part::kTrain, 1);
    ASSERT_FALSE(alone.ok());
    EXPECT_NE(alone.error().message.find("the only valid record"), std::string::npos);
}

// ---- Batches ------------------------------------------------------------------------------------

TEST(Preference, APairIsOneSequence) {
    const test::TempDir folder;
    const std::string path =
        WriteText(folder, "data.jsonl",
                  "{\"prompt\": \"ab\", \"chosen\": \"cdefgh\", \"rejected\": \"i\"}\n"
                  "{\"prompt\": \"abcdefgh\", \"chosen\": \"i\", \"rejected\": \"j\"}\n"
                  "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                  "{\"prompt\": \"ab\", \"chosen\": \"cdefgh\", \"rejected\": \"CDEFGH\"}\n");
    DataOptions options;
    options.specs = {path};
    options.loss = LossKind::kDpo;
    const auto set = Must(DataSet::Open(options, ByteEncoder()));
    LoaderOptions loading{.sequence = 6, .global_batch = 4, .shuffle = false, .epochs = 1};
    loading.pack = false;
    std::vector<double> reference(4 * kMostAnswers);
    reference[2 * kMostAnswers + 1] = -7;
    loading.reference[0] = reference;
    Loader loader = Must(Loader::Make(*set, loading));
    const auto batch = Must(loader.Next());
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->sequences.size(), 4u);
    EXPECT_EQ(batch->samples_of[0], 3u);
    EXPECT_EQ(batch->samples_of[1], 3u);
    const Sequence& first = batch->sequences[0];
    EXPECT_EQ(first.begins, (std::vector<int32_t>{0, 6}));  // the first answer is cut to 6
    EXPECT_EQ(first.used, 9);
    EXPECT_EQ(first.targets[6], -1);  // the border between the answers is not learned
    EXPECT_EQ(batch->sequences[1].record, 2u);
    EXPECT_EQ(batch->sequences[1].reference, (std::vector<double>{0, -7}));
    EXPECT_EQ(loader.counts().cut_off, 1u);    // no token of the second record's answers remains
    EXPECT_EQ(loader.counts().truncated, 3u);  // records, of which the last one lost two ends
    Loader counting = Must(Loader::Make(*set, loading));
    counting.CountOnly();
    EXPECT_EQ(Must(counting.Next())->global_sequences, 3u);
}

// ---- Losses -------------------------------------------------------------------------------------

struct LossCase {
    PreferenceOptions options;
    std::vector<float> losses;
    double Loss(std::vector<float>* weights = nullptr) const {
        Batch batch;
        batch.samples_of = {2, 2, 0};
        batch.chosen_targets = 5;
        const std::vector<AnswerRows> answers = {{SampleRole::kChosen, 0, 3, -2.5},
                                                 {SampleRole::kRejected, 3, 5, -1.25},
                                                 {SampleRole::kChosen, 5, 7, -0.5},
                                                 {SampleRole::kRejected, 7, 11, -6}};
        // The first row of the chosen answers belongs to the prompt.
        const std::vector<uint8_t> in_answer = {0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1};
        std::vector<float> own(losses.size());
        PreferenceSums sums;
        PreferenceLoss(options, batch, 0.25).Add(answers, losses, in_answer, own, sums);
        if (weights != nullptr) *weights = own;
        return sums[PreferenceSums::kLoss];
    }
};

TEST(PreferenceLosses, WeightsAreDerivatives) {
    for (const LossKind kind : kPreferences) {
        LossCase c;
        c.options.loss = kind;
        c.options.beta = 0.7;
        c.options.label_smoothing = 0.125;
        c.options.desirable_weight = 1.5;
        c.losses = {0.5f, 1.25f, 0.75f, 2, 0.25f, 1, 3, 0.5f, 1.5f, 0.125f, 1.75f};
        std::vector<float> weights;
        c.Loss(&weights);
        for (size_t i = 0; i < c.losses.size(); ++i) {
            constexpr float kStep = 0x1p-7f;
            LossCase up = c, down = c;
            up.losses[i] += kStep;
            down.losses[i] -= kStep;
            const double slope = (up.Loss() - down.Loss()) / (2 * double{kStep});
            // (The third derivatives are at most some units.)
            EXPECT_NEAR(weights[i], slope, 2e-4) << LossName(kind) << " row " << i;
        }
    }
}

// A model that is sure of an answer: in float32 its losses are 0.
TEST(PreferenceLosses, OfCertainAnswersAreFinite) {
    for (const LossKind kind : kPreferences) {
        for (const float rejected : {0.0f, 0x1p-24f, 1.0f}) {
            LossCase c;
            c.options.loss = kind;
            c.losses = {0, 0, 0, rejected, rejected, 0, 0, 1, 1, 1, 1};
            std::vector<float> weights;
            EXPECT_TRUE(std::isfinite(c.Loss(&weights))) << LossName(kind);
            for (const float weight : weights) EXPECT_TRUE(std::isfinite(weight)) << LossName(kind);
        }
    }
}

// The derivative of ORPO by the log-probability of a certain chosen answer: minus beta times the
// odds of the rejected one.
TEST(PreferenceLosses, OrpoOfACertainAnswer) {
    LossCase c;
    c.options.loss = LossKind::kOrpo;
    c.options.beta = 0.5;
    c.losses = {1, 0, 0, 2, 2, 1, 1, 1, 1, 1, 1};
    std::vector<float> weights;
    c.Loss(&weights);
    const double odds = std::exp(-2) / (1 - std::exp(-2));
    // Two pairs, two tokens; 5 targets of chosen answers.
    EXPECT_NEAR(weights[1], 0.5 * odds / 2 / 2 + 0.2, 1e-6);
}

}  // namespace
}  // namespace weft::train
