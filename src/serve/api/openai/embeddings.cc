#include "serve/api/openai/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <bit>
#include <cmath>
#include <iterator>

#include "serve/api/dialect.h"
#include "serve/api/prompts.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// Texts of one list that the engine has at a time.
constexpr size_t kMostSubmitted = 64;

// Encodes the numbers as little-endian float32.
void AppendBase64(std::span<const float> numbers, std::string& out) {
    std::vector<unsigned char> bytes;
    for (const float number : numbers) {
        const auto bits = std::bit_cast<uint32_t>(number);
        for (int shift = 0; shift < 32; shift += 8) {
            bytes.push_back(static_cast<unsigned char>(bits >> shift));
        }
    }
    const size_t begin = out.size();
    out.resize(begin + (bytes.size() + 2) / 3 * 4 + 1);  // for the terminating zero
    const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data() + begin),
                                       bytes.data(), static_cast<int>(bytes.size()));
    out.resize(begin + static_cast<size_t>(size));
}

// The prompt that the request names, else the default.
std::string ReadPrompt(Fields& fields, const Served& served) {
    if (!fields.Has("prompt_name")) return served.head.prompt;
    const std::string name = fields.Text("prompt_name", "");
    const auto found = served.head.prompts.find(name);
    if (found != served.head.prompts.end()) return found->second;
    std::string names;
    for (const auto& [each, text] : served.head.prompts) {
        names += (names.empty() ? "" : ", ") + each;
    }
    fields.Fail("prompt_name", fmt::format("The model has no prompt of this name; it has: {}.",
                                           names.empty() ? "none" : names));
    return "";
}

}  // namespace

int64_t UnpooledTokens(const Served& served, std::string_view prompt) {
    if (served.head.pools_prompt || prompt.empty()) return 0;
    const tokenizer::Tokenizer& tokenizer = served.tokenizer();
    const std::vector<int32_t> ids = tokenizer.Encode(prompt, {.add_special = true});
    const bool ends = !ids.empty() && tokenizer.IsSpecial(ids.back());
    return std::ssize(ids) - (ends ? 1 : 0);
}

std::optional<ApiError> PlanEmbeddings(const Json& body, const Served& served,
                                       EmbeddingPlan& plan) {
    Fields fields(body);
    if (auto error = CheckModel(fields, served)) return error;
    if (served.head.scores) {
        return ApiError{400, "This model scores pairs of texts: use /v1/rerank or /v1/score.",
                        "model", "unsupported_value"};
    }
    const auto kept = ReadKeptTokens(fields, served, 0);
    const std::string prompt = ReadPrompt(fields, served);
    const std::vector<Prompt> prompts = ReadPrompts(fields, served, "input", kMostEmbeddingTexts,
                                                    false, &served.head, kept, prompt);
    const int64_t unpooled = UnpooledTokens(served, prompt);
    plan.base64 = fields.Choice("encoding_format", "float", {"float", "base64"}) == "base64";
    plan.dimensions = fields.Integer("dimensions", 0, 1, served.embedding_columns());
    engine::Request each;
    ReadCaching(fields, each);
    for (const char* name : {"normalize", "use_activation"}) {
        if (fields.Bool(name, served.head.normalizes()) == served.head.normalizes()) continue;
        fields.Fail(
            name,
            fmt::format("'{}' is {} for this model: its vectors {} normalized.", name,
                        served.head.normalizes(), served.head.normalizes() ? "are" : "are not"),
            "unsupported_value");
    }
    CheckMembers(fields, served, plan.left);
    if (fields.error()) return fields.error();
    for (size_t i = 0; i < prompts.size(); ++i) {
        const std::string name = prompts.size() == 1 ? "input" : fmt::format("input[{}]", i);
        if (prompts[i].is_text && prompts[i].text.empty()) {
            return ApiError{400, fmt::format("'{}' is an empty text.", name), name,
                            "invalid_value"};
        }
        engine::Request request = each;
        request.prompt = prompts[i].tokens;
        request.pooling = served.head.poolings;
        if (prompts[i].is_text) request.pool_from = unpooled;
        request.adapter = ReadAdapter(fields, served);
        if (const Status sound = served.engine->Check(request); !sound.ok()) {
            if (!served.engine->Fits(request)) {
                return TooLong({std::ssize(request.prompt), served.engine->context(), false}, name);
            }
            ApiError error = ErrorOf(sound.error());
            if (sound.error().code == ErrorCode::kUsage) error.param = name;
            return error;
        }
        plan.requests.push_back(std::move(request));
    }
    return fields.error();
}

std::string EmbeddingText(std::vector<float> vector, int64_t dimensions, bool normalizes,
                          bool base64) {
    if (dimensions > 0 && dimensions < static_cast<int64_t>(vector.size())) {
        vector.resize(static_cast<size_t>(dimensions));
        double squares = 0;
        for (const float x : vector) squares += double{x} * double{x};
        const double length = normalizes && squares > 0 ? std::sqrt(squares) : 1;
        for (float& x : vector) x = static_cast<float>(x / length);
    }
    std::string out;
    if (base64) {
        out += '"';
        AppendBase64(vector, out);
        out += '"';
        return out;
    }
    out += '[';
    for (size_t i = 0; i < vector.size(); ++i) {
        fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", vector[i]);
    }
    out += ']';
    return out;
}

class EmbeddingAnswer::TextListener final : public engine::Listener {
  public:
    TextListener(std::shared_ptr<EmbeddingAnswer> answer, size_t index)
        : answer_(std::move(answer)), index_(index) {}
    void OnToken(const engine::GeneratedToken&, std::string_view) override {}
    void OnEmbedding(std::vector<float> vector) override { vector_ = std::move(vector); }
    void OnSpent(int64_t prompt_tokens, int64_t) override { answer_->AddUsage(prompt_tokens); }
    void OnEnd(std::string_view, const Result<engine::Ending>& ending) override {
        answer_->OnText(index_, std::move(vector_), ending);
    }

  private:
    std::shared_ptr<EmbeddingAnswer> answer_;
    size_t index_;
    std::vector<float> vector_;
};

EmbeddingAnswer::EmbeddingAnswer(const Served& served, std::shared_ptr<Exchange> exchange,
                                 EmbeddingPlan plan, Later later, Observer observer)
    : served_(served),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      later_(std::move(later)),
      observer_(std::move(observer)),
      vectors_(plan_.requests.size()),
      left_(plan_.requests.size()) {
    record_.request_id = exchange_->request().id;
}

void EmbeddingAnswer::Start(const Served& served, std::shared_ptr<Exchange> exchange,
                            EmbeddingPlan plan, Later later, Observer observer) {
    std::shared_ptr<EmbeddingAnswer> answer(new EmbeddingAnswer(
        served, std::move(exchange), std::move(plan), std::move(later), std::move(observer)));
    answer->exchange_->OnDisconnect([weak = answer->weak_from_this()] {
        if (const auto self = weak.lock()) self->CancelAll();
    });
    const std::lock_guard lock(answer->mutex_);
    if (const auto refusal = answer->exchange_->Hold(answer->BytesToFormat())) {
        return answer->Fail({refusal->status, refusal->message, "", refusal->code});
    }
    for (size_t i = 0; i < kMostSubmitted; ++i) answer->SubmitNext();
}

// Submits as many texts as allowed. The lock is held.
void EmbeddingAnswer::SubmitNext() {
    if (over_ || next_ == plan_.requests.size()) return;
    const size_t index = next_++;
    engine::Request& request = plan_.requests[index];
    request.goes_on = index > 0;
    request.group = ids_.empty() ? 0 : ids_.front();
    const auto id = served_.engine->Submit(
        std::move(request), std::make_shared<TextListener>(shared_from_this(), index));
    if (id.ok()) {
        ids_.push_back(*id);
        ++running_;
    } else {
        Fail(ErrorOf(id.error()));
    }
}

void EmbeddingAnswer::OnText(size_t index, std::vector<float> vector,
                             const Result<engine::Ending>& ending) {
    const std::lock_guard lock(mutex_);
    --running_;
    if (over_ && running_ == 0) SendFailure();
    if (over_) return;
    if (!ending.ok()) return Fail(ErrorOf(ending.error()));
    vectors_[index] = std::move(vector);
    record_.usage.prompt_tokens += ending->prompt_tokens;
    record_.usage.cached_tokens += ending->cached_tokens;
    record_.endings.push_back(*ending);
    SubmitNext();
    if (--left_ > 0 || over_) return;
    over_ = true;
    later_(BytesToFormat(), [self = shared_from_this()] { self->Send(); });
}

// Adds the tokens that an unfinished text has computed.
void EmbeddingAnswer::AddUsage(int64_t prompt_tokens) {
    const std::lock_guard lock(mutex_);
    record_.usage.prompt_tokens += prompt_tokens;
}

// The lock is held. Cancel only sets a flag, so the last text to end sends the error.
void EmbeddingAnswer::Fail(const ApiError& error) {
    over_ = true;
    record_.error = error.message;
    failure_ = error;
    for (const int64_t id : ids_) served_.engine->Cancel(id);
    if (running_ == 0) SendFailure();
}

void EmbeddingAnswer::SendFailure() {
    Headers headers = plan_.headers;
    headers.emplace_back("Content-Type", "application/json");
    if (failure_.status == 503) headers.emplace_back("Retry-After", "5");
    NoteRecord(*exchange_, record_);
    Observe();
    exchange_->Send(failure_.status, std::move(headers), plan_.error_body(failure_));
}

void EmbeddingAnswer::CancelAll() {
    const std::lock_guard lock(mutex_);
    if (!over_) Fail({503, "the client disconnected", "", "cancelled"});
}

std::string EmbeddingAnswer::Body() const {
    if (plan_.of_numbers) return plan_.of_numbers(vectors_, record_);
    std::vector<std::string> vectors;
    for (const std::vector<float>& vector : vectors_) {
        vectors.push_back(
            EmbeddingText(vector, plan_.dimensions, served_.head.normalizes(), plan_.base64));
    }
    if (plan_.body) return plan_.body(vectors, record_);
    std::string body = R"({"object":"list","data":[)";
    for (size_t i = 0; i < vectors.size(); ++i) {
        body += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)",
                            i == 0 ? "" : ",", i);
        body += vectors[i];
        body += '}';
    }
    const int64_t tokens = record_.usage.prompt_tokens;
    body += fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                        Quoted(served_.NameOf(plan_.requests[0].adapter)), tokens, tokens);
    return body;
}

// Approximate size of the answer.
size_t EmbeddingAnswer::BytesToFormat() const {
    const int64_t numbers = plan_.dimensions > 0 ? plan_.dimensions : served_.embedding_columns();
    const size_t number_bytes = plan_.base64 ? 6 : 13;
    return vectors_.size() * (static_cast<size_t>(numbers) * number_bytes + 64) + plan_.more_bytes;
}

void EmbeddingAnswer::Send() {
    const model_files::EmbeddingHead& head = served_.head;
    for (std::vector<float>& pooled : vectors_) {
        auto vector = head.Apply(std::move(pooled));
        const std::lock_guard lock(mutex_);
        if (!vector.ok()) return Fail(ErrorOf(vector.error()));
        pooled = std::move(*vector);
    }
    Headers headers = plan_.headers;
    headers.emplace_back("Content-Type", "application/json");
    NoteRecord(*exchange_, record_);
    std::string body = Body();
    {
        const std::lock_guard lock(mutex_);
        Observe();
    }
    exchange_->Send(200, std::move(headers), std::move(body));
}

// Called before the client can see the end: it frees the key's place.
void EmbeddingAnswer::Observe() {
    if (const Observer observer = std::exchange(observer_, nullptr); observer) observer(record_);
}

}  // namespace weft::serve
