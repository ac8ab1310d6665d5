#include "serve/api/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>
#include <numeric>
#include <span>

#include "base/utf8.h"
#include "serve/api/dialect.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// A request has at most this many tokens in all of its pairs (16 MiB of ids).
constexpr int64_t kMostTokens = int64_t{1} << 22;

// A text of the request, and its name in errors.
struct NamedText {
    std::string text, name;
};

// Reads a text, or a list of texts and of objects with a "text". one: only a text.
std::vector<NamedText> ReadTexts(Fields& fields, const char* name, bool one = false) {
    const Json& json = fields.Get(name);
    const std::string shown = fields.RequestName(name);
    std::vector<NamedText> texts;
    const auto add = [&](const Json& item, std::string of) {
        const bool object = item.is_object() && item.contains("text") && item["text"].is_string();
        if (!item.is_string() && !object) return false;
        texts.push_back({(object ? item["text"] : item).get<std::string>(), std::move(of)});
        return true;
    };
    bool good = !json.is_array() && add(json, shown);
    if (json.is_array() && !one && !json.empty() && json.size() <= kMostEmbeddingTexts) {
        good = true;
        for (size_t i = 0; i < json.size() && good; ++i) {
            good = add(json[i], fmt::format("{}[{}]", shown, i));
        }
    }
    if (!good) {
        const std::string count = json.is_array() && json.size() > kMostEmbeddingTexts
                                      ? fmt::format("; it has {}", json.size())
                                      : "";
        fields.Fail(name, one ? fmt::format("'{}' must be a string.", shown)
                              : fmt::format("'{}' must be a string or a list of 1 to {} strings{}.",
                                            shown, kMostEmbeddingTexts, count));
        return {};
    }
    for (const NamedText& text : texts) {
        if (text.text.empty()) {
            fields.Fail(name, fmt::format("'{}' is an empty text.", text.name));
            return {};
        }
    }
    return texts;
}

// The texts of a request, and which of them make its pairs.
struct Pairs {
    std::vector<NamedText> firsts, seconds;
    std::string prompt{};
    bool markers = false;  // the texts of special tokens become tokens
    int64_t most = 0;      // tokens of a pair, or of a text of its own
    bool cuts = true;      // longer ones are cut, else refused
    size_t size() const { return std::max(firsts.size(), seconds.size()); }
    size_t First(size_t pair) const { return firsts.size() == 1 ? 0 : pair; }
    size_t Second(size_t pair) const { return seconds.size() == 1 ? 0 : pair; }
};

std::optional<ApiError> Add(const Served& served, tokenizer::Tokenizer::Pair pair,
                            const std::string& name, int64_t most, int32_t adapter, int64_t& tokens,
                            EmbeddingPlan& plan) {
    if (std::ssize(pair.ids) > most) return TooLong({std::ssize(pair.ids), most, false}, name);
    tokens += std::ssize(pair.ids);
    if (tokens > kMostTokens) {
        return ApiError{400,
                        fmt::format("'{}': the texts so far have more than {} tokens, counting a "
                                    "query once per document. Send fewer documents at a time.",
                                    name, kMostTokens),
                        name, "invalid_value"};
    }
    engine::Request request;
    request.prompt = std::move(pair.ids);
    request.second = static_cast<int64_t>(pair.second);
    request.pooling = served.head.poolings;
    request.adapter = adapter;
    if (const Status sound = served.engine->Check(request); !sound.ok()) {
        ApiError error = ErrorOf(sound.error());
        error.message = fmt::format("'{}': {}", name, error.message);
        if (sound.error().code == ErrorCode::kUsage) error.param = name;
        return error;
    }
    plan.requests.push_back(std::move(request));
    return {};
}

// The pair of a query and a document. If it has more than `pairs.most` tokens, two plain texts are
// cut as in PairForm; in the prompt of a model, the document loses its end.
Result<tokenizer::Tokenizer::Pair> EncodeCut(const Served& served, const Pairs& pairs,
                                             std::string_view query, std::string_view document) {
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    document = Beginning(tokenizer, document, static_cast<size_t>(pairs.most) + 1, pairs.markers);
    const auto encode = [&](std::string_view shown) {
        return served.pairs->Encode(query, shown, pairs.prompt, pairs.most, pairs.markers);
    };
    auto pair = encode(document);
    const auto more = [&] { return pair.ok() ? std::ssize(pair->ids) - pairs.most : 0; };
    if (more() <= 0) return pair;
    const std::vector<int32_t> words = tokenizer.Encode(document, {.add_special = false});
    for (size_t kept = words.size(); kept > 0 && more() > 0;) {
        kept -= std::min(kept, static_cast<size_t>(more()));
        std::string shown = tokenizer.Decode(std::span(words).first(kept), false);
        shown.resize(shown.size() - IncompleteTail(shown));
        pair = encode(shown);
    }
    return pair;
}

std::optional<ApiError> AddPairs(const Served& served, const Pairs& pairs, int32_t adapter,
                                 EmbeddingPlan& plan) {
    if (!served.pairs) {
        return ApiError{400, "The model has no form for a query and a document.", "model",
                        "unsupported_value"};
    }
    if (pairs.markers && !served.pairs->plain()) {
        return ApiError{400,
                        "'parse_special' is false for this model, because its own prompt "
                        "contains the texts.",
                        "parse_special", "unsupported_value"};
    }
    int64_t tokens = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
        const NamedText& first = pairs.firsts[pairs.First(i)];
        const NamedText& second = pairs.seconds[pairs.Second(i)];
        for (const NamedText* text : {&first, &second}) {
            if (text == &second && pairs.cuts) continue;
            if (auto error = CheckPromptBytes(served, text->text.size(), text->name.c_str())) {
                return error;
            }
        }
        auto pair = pairs.cuts ? EncodeCut(served, pairs, first.text, second.text)
                               : served.pairs->Encode(first.text, second.text, pairs.prompt, 0,
                                                      pairs.markers);
        if (!pair.ok()) return ErrorOf(pair.error());
        while (pair->ids.size() > 1 && pair->ids.back() == served.head.padding) {
            pair->ids.pop_back();
        }
        pair->second = std::min(pair->second, pair->ids.size());
        const std::string& name =
            pairs.cuts || pairs.seconds.size() == 1 ? first.name : second.name;
        if (auto error = Add(served, std::move(*pair), name, pairs.most, adapter, tokens, plan)) {
            return error;
        }
    }
    return {};
}

// An embedding model reads each text once.
std::optional<ApiError> AddTexts(const Served& served, const Pairs& pairs, int32_t adapter,
                                 EmbeddingPlan& plan) {
    int64_t tokens = 0;
    const int64_t unpooled = UnpooledTokens(served, pairs.prompt);
    for (const auto* texts : {&pairs.firsts, &pairs.seconds}) {
        for (const NamedText& text : *texts) {
            auto error = CheckPromptBytes(served, text.text.size(), text.name.c_str());
            if (error && !pairs.cuts) return error;
            const std::string whole = pairs.prompt + text.text;
            auto ids = pairs.cuts
                           ? CutTokens(served.tokenizer(), whole, pairs.most, pairs.markers,
                                       served.head.cuts_begin)
                           : served.tokenizer().Encode(
                                 whole, {.add_special = true, .parse_special = pairs.markers});
            const size_t end = ids.size();
            error =
                Add(served, {std::move(ids), end}, text.name, pairs.most, adapter, tokens, plan);
            if (error) return error;
            plan.requests.back().pool_from = unpooled;
        }
    }
    return {};
}

using Vectors = EmbeddingPlan::Vectors;

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double dot = 0, of_a = 0, of_b = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        dot += double{a[i]} * double{b[i]};
        of_a += double{a[i]} * double{a[i]};
        of_b += double{b[i]} * double{b[i]};
    }
    return dot / std::sqrt(std::max(of_a * of_b, 1e-24));
}

// The scores of the pairs, from the vectors of their requests.
struct Scorer {
    const Served* served;
    bool raw = false;
    size_t firsts = 0, seconds = 0;
    std::vector<float> operator()(const Vectors& vectors) const {
        std::vector<float> scores;
        for (size_t i = 0; i < std::max(firsts, seconds); ++i) {
            if (served->head.scores) {
                const float score = vectors[i][0];
                scores.push_back(raw ? score : served->head.Activated(score));
                continue;
            }
            const size_t first = firsts == 1 ? 0 : i, second = firsts + (seconds == 1 ? 0 : i);
            scores.push_back(static_cast<float>(Cosine(vectors[first], vectors[second])));
        }
        return scores;
    }
};

// Plans the requests of the pairs. Error: the response for the client.
std::optional<ApiError> PlanPairs(Fields& fields, const Served& served, Pairs& pairs,
                                  EmbeddingPlan& plan, Scorer& scorer) {
    if (!served.head.scores && served.generates && !served.head.from_file) {
        return ApiError{400,
                        "This server generates text. Start one with a reranker, or with --pooling "
                        "rank for a language model that answers yes or no, or with --embeddings.",
                        "model", "unsupported_value"};
    }
    scorer.served = &served;
    scorer.raw = fields.Bool("raw_scores", false) || !fields.Bool("use_activation", true);
    scorer.firsts = pairs.firsts.size();
    scorer.seconds = pairs.seconds.size();
    pairs.prompt = fields.Text("instruction", served.head.prompt);
    pairs.markers = ReadsMarkers(fields, false);
    pairs.cuts = fields.Bool("truncate", true);
    pairs.most = served.engine->context();
    const bool plain = !served.head.scores || !served.pairs || served.pairs->plain();
    if (plain && served.head.most_tokens > 0) {
        pairs.most = std::min(pairs.most, served.head.most_tokens);
    }
    const int64_t asked = fields.Integer("truncate_prompt_tokens", -1, -1, pairs.most);
    if (asked == 0) {
        fields.Fail("truncate_prompt_tokens", "'truncate_prompt_tokens' must be -1 or at least 1.");
    }
    if (asked > 0) pairs.most = asked;
    engine::Request each;
    ReadCaching(fields, each);
    const int32_t adapter = ReadAdapter(fields, served);
    CheckMembers(fields, served, plan.left);
    if (fields.error()) return fields.error();
    // (Each text is read behind it.)
    if (auto error = CheckPromptBytes(served, pairs.prompt.size(), "instruction")) return error;
    auto error = served.head.scores ? AddPairs(served, pairs, adapter, plan)
                                    : AddTexts(served, pairs, adapter, plan);
    for (engine::Request& request : plan.requests) {
        request.cached = each.cached;
        request.tenant = each.tenant;
    }
    return error;
}

std::string UsageText(const AnswerRecord& record) {
    const int64_t tokens = record.usage.prompt_tokens;
    return fmt::format(R"({{"prompt_tokens":{},"total_tokens":{}}})", tokens, tokens);
}

// The best scores first; equal ones in the order of the request.
std::vector<size_t> Ranked(const std::vector<float>& scores, size_t count) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(std::min(order.size(), count));
    return order;
}

struct RankForm {
    bool tei = false, shows = true;
    size_t count = 0;
    std::string model;
    std::vector<NamedText> documents;
};

std::string RankBody(const RankForm& form, const std::vector<float>& scores,
                     const AnswerRecord& record) {
    std::string body = "[";
    for (const size_t i : Ranked(scores, form.count)) {
        if (body.size() > 1) body += ',';
        fmt::format_to(std::back_inserter(body), R"({{"index":{},"{}":{})", i,
                       form.tei ? "score" : "relevance_score", scores[i]);
        const std::string text = form.shows ? Quoted(form.documents[i].text) : "";
        if (form.shows) {
            body += form.tei ? fmt::format(R"(,"text":{})", text)
                             : fmt::format(R"(,"document":{{"text":{}}})", text);
        }
        body += '}';
    }
    body += ']';
    if (form.tei) return body;
    return fmt::format(R"({{"id":{},"object":"list","model":{},"usage":{},"results":{}}})",
                       Quoted(MakeId("rerank-")), Quoted(form.model), UsageText(record), body);
}

}  // namespace

std::optional<ApiError> PlanRerank(const Json& body, const Served& served, EmbeddingPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    RankForm form;
    form.tei = fields.Has("texts");
    Pairs pairs;
    pairs.firsts = ReadTexts(fields, "query", true);
    pairs.seconds = ReadTexts(fields, form.tei ? "texts" : "documents");
    form.shows =
        form.tei ? fields.Bool("return_text", false) : fields.Bool("return_documents", true);
    const auto most = static_cast<int64_t>(kMostEmbeddingTexts);
    form.count = static_cast<size_t>(fields.Integer("top_n", most, 1, INT32_MAX));
    if (fields.error()) return fields.error();
    Scorer scorer{};
    if (auto error = PlanPairs(fields, served, pairs, plan, scorer)) return error;
    form.documents = std::move(pairs.seconds);
    form.model = served.NameOf(plan.requests[0].adapter);
    for (const NamedText& document : form.documents) {
        plan.more_bytes += form.shows ? document.text.size() : 0;
    }
    plan.of_numbers = [form = std::move(form), scorer](const Vectors& vectors,
                                                       const AnswerRecord& record) {
        return RankBody(form, scorer(vectors), record);
    };
    return {};
}

std::optional<ApiError> PlanScore(const Json& body, const Served& served, EmbeddingPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    // vLLM's names of both texts.
    const auto named = [&](const char* usual, std::initializer_list<const char*> others) {
        const auto has = [&](const char* name) { return fields.Has(name); };
        const auto* found = std::ranges::find_if(others, has);
        return fields.Has(usual) || found == others.end() ? usual : *found;
    };
    Pairs pairs;
    pairs.firsts = ReadTexts(fields, named("text_1", {"data_1", "queries"}));
    pairs.seconds = ReadTexts(fields, named("text_2", {"data_2", "documents", "items"}));
    if (fields.error()) return fields.error();
    if (pairs.firsts.size() != 1 && pairs.firsts.size() != pairs.seconds.size()) {
        fields.Fail("text_2", fmt::format("'text_1' has {} texts and 'text_2' {}; expected one "
                                          "text_1, or as many of both.",
                                          pairs.firsts.size(), pairs.seconds.size()));
        return fields.error();
    }
    Scorer scorer{};
    if (auto error = PlanPairs(fields, served, pairs, plan, scorer)) return error;
    plan.of_numbers = [model = served.NameOf(plan.requests[0].adapter), scorer](
                          const Vectors& vectors, const AnswerRecord& record) {
        std::string data;
        const std::vector<float> scores = scorer(vectors);
        for (size_t i = 0; i < scores.size(); ++i) {
            fmt::format_to(std::back_inserter(data),
                           R"({}{{"index":{},"object":"score","score":{}}})", i == 0 ? "" : ",", i,
                           scores[i]);
        }
        return fmt::format(
            R"({{"id":{},"object":"list","created":{},"model":{},"data":[{}],"usage":{}}})",
            Quoted(MakeId("score-")), std::time(nullptr), Quoted(model), data, UsageText(record));
    };
    return {};
}

}  // namespace weft::serve
