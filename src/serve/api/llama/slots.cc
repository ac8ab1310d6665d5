#include "serve/api/llama/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/page_store/slot_file.h"
#include "serve/api/sampling.h"

namespace weft::serve {
namespace {

// As in llama-server: the least part of a prompt with which a slot's text begins.
constexpr double kLeastSimilar = 0.1;
constexpr int kTrials = 8;  // choices of a slot that other requests may take meanwhile

std::optional<int64_t> NumberOf(std::string_view text) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return {};
    return number;
}

ApiError NoSuchSlot(std::string_view name, int64_t slots) {
    return {
        400,
        fmt::format("Invalid slot ID: {}. The slots are 0 to {}.", name.substr(0, 40), slots - 1),
        "id_slot", "invalid_value"};
}

}  // namespace

SlotTable::Use::Use(std::shared_ptr<SlotTable> table, std::string owner, int64_t id,
                    uint64_t number)
    : table_(std::move(table)), owner_(std::move(owner)), id_(id), number_(number) {}

SlotTable::Use::~Use() {
    table_->End(owner_, id_, number_, said_, cached_);
}

SlotTable::Slots& SlotTable::Of(const std::string& owner) {
    Slots& slots = owners_[owner];
    slots.resize(static_cast<size_t>(slots_));
    return slots;
}

// Compares each text, of perhaps a million tokens, at most once, and only if it may begin as much
// of the prompt as the best one so far.
int64_t SlotTable::Choose(const Slots& slots, const engine::Request& request) const {
    const auto& prompt = request.prompt;
    int64_t best = 0;
    std::tuple<bool, size_t, uint64_t> best_rank{};
    for (int64_t i = 0; i < slots_; ++i) {
        const Slot& slot = slots[static_cast<size_t>(i)];
        const bool idle = slot.use == nullptr;
        const size_t least = std::get<1>(best_rank);
        const bool may = slot.text != nullptr && slot.adapter == request.adapter &&
                         slot.tenant == request.tenant &&
                         (least == 0 || (slot.text->size() >= least &&
                                         (*slot.text)[least - 1] == prompt[least - 1]));
        size_t same = 0;
        if (idle && may) {
            const auto differ = std::ranges::mismatch(*slot.text, prompt);
            same = static_cast<size_t>(differ.in2 - prompt.begin());
        }
        const double similar = static_cast<double>(same) / static_cast<double>(prompt.size());
        const std::tuple rank(idle, similar > kLeastSimilar ? same : 0, ~slot.used);
        if (i > 0 && rank <= best_rank) continue;
        best = i;
        best_rank = rank;
    }
    return best;
}

void SlotTable::Set(Slot& slot, std::shared_ptr<const Tokens> text) {
    tokens_ -= slot.tokens();
    slot.text = std::move(text);
    tokens_ += slot.tokens();
    Touch(slot);
}

// Forgets the oldest texts until all have kMostTokens, but not that of `slot`.
void SlotTable::Touch(Slot& slot) {
    slot.used = ++clock_;
    while (tokens_ > kMostTokens) {
        Slot* oldest = nullptr;
        for (auto& [owner, slots] : owners_) {
            for (Slot& other : slots) {
                if (&other == &slot || other.text == nullptr) continue;
                if (oldest == nullptr || other.used < oldest->used) oldest = &other;
            }
        }
        if (oldest == nullptr) return;
        tokens_ -= oldest->tokens();
        oldest->text = nullptr;
    }
}

std::shared_ptr<SlotTable::Use> SlotTable::Begin(const std::string& owner, int64_t wanted,
                                                 const engine::Request& request) {
    auto text = std::make_shared<const Tokens>(request.prompt);
    std::unique_lock lock(mutex_);
    int64_t id = wanted;
    // Texts are compared without the lock, because the engine's thread may wait for it. If another
    // request has taken the slot meanwhile, the next trial finds another one.
    for (int trial = 0; wanted < 0 && trial < kTrials; ++trial) {
        const Slots seen = Of(owner);
        lock.unlock();
        id = Choose(seen, request);
        lock.lock();
        const auto at = static_cast<size_t>(id);
        if (Of(owner)[at].number == seen[at].number) break;
    }
    Slot& slot = Of(owner)[static_cast<size_t>(id)];
    slot.number = ++number_;
    slot.prompt = std::ssize(request.prompt);
    slot.cached = 0;
    slot.max_tokens = request.max_tokens;
    auto use = std::make_shared<Use>(shared_from_this(), owner, id, slot.number);
    slot.use = use.get();
    slot.adapter = request.adapter;
    slot.tenant = request.tenant;
    Set(slot, std::move(text));
    return use;
}

void SlotTable::End(const std::string& owner, int64_t id, uint64_t number,
                    const std::vector<int32_t>& said, int64_t cached) {
    const std::lock_guard lock(mutex_);
    Slot& slot = Of(owner)[static_cast<size_t>(id)];
    if (slot.number != number) return;  // a later request uses the slot
    slot.use = nullptr;
    slot.cached = cached;
    if (slot.text == nullptr) return;  // erased or forgotten meanwhile
    Tokens whole;
    whole.reserve(slot.text->size() + said.size());
    whole.insert(whole.end(), slot.text->begin(), slot.text->end());
    whole.insert(whole.end(), said.begin(), said.end());
    Set(slot, std::make_shared<const Tokens>(std::move(whole)));
}

SlotTable::Text SlotTable::TextOf(const std::string& owner, int64_t id) const {
    Slot slot;
    {
        const std::lock_guard lock(mutex_);
        const auto found = owners_.find(owner);
        if (found != owners_.end()) slot = found->second[static_cast<size_t>(id)];
    }
    return {slot.text == nullptr ? Tokens() : *slot.text, slot.adapter, slot.tenant};
}

void SlotTable::Put(const std::string& owner, int64_t id, Text text) {
    const std::lock_guard lock(mutex_);
    Slot& slot = Of(owner)[static_cast<size_t>(id)];
    slot.use = nullptr;
    slot.number = ++number_;
    slot.prompt = slot.cached = std::ssize(text.tokens);
    slot.max_tokens = 0;
    slot.adapter = text.adapter;
    slot.tenant = std::move(text.tenant);
    Set(slot, std::make_shared<const Tokens>(std::move(text.tokens)));
}

int64_t SlotTable::Erase(const std::string& owner, int64_t id) {
    const std::lock_guard lock(mutex_);
    Slot& slot = Of(owner)[static_cast<size_t>(id)];
    const int64_t tokens = slot.tokens();
    Set(slot, nullptr);
    slot.used = 0;
    return tokens;
}

bool SlotTable::HasIdle(const std::string& owner) const {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(owner);
    const auto is_idle = [](const Slot& slot) { return slot.use == nullptr; };
    return found == owners_.end() || std::ranges::any_of(found->second, is_idle);
}

Json SlotTable::SlotJson(const Slot& slot) {
    const int64_t said =
        slot.use != nullptr ? slot.use->count() : std::max<int64_t>(0, slot.tokens() - slot.prompt);
    const bool read = slot.use == nullptr || said > 0;
    return {{"id_task", slot.number},
            {"n_prompt_tokens", slot.prompt},
            {"n_prompt_tokens_processed", read ? slot.prompt - slot.cached : 0},
            {"n_prompt_tokens_cache", slot.cached},
            {"params", {{"n_predict", slot.max_tokens}, {"max_tokens", slot.max_tokens}}},
            {"next_token",
             {{"has_next_token", slot.use != nullptr},
              {"n_remain", slot.max_tokens < 0 ? -1 : std::max<int64_t>(0, slot.max_tokens - said)},
              {"n_decoded", said}}}};
}

Json SlotTable::Describe(const std::string& owner) const {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(owner);
    Json list = Json::array();
    for (int64_t i = 0; i < slots_; ++i) {
        const Slot* slot =
            found == owners_.end() ? nullptr : &found->second[static_cast<size_t>(i)];
        Json one{{"id", i},
                 {"n_ctx", context_},
                 {"speculative", speculative_},
                 {"is_processing", slot != nullptr && slot->use != nullptr}};
        if (slot != nullptr && slot->number > 0) one.update(SlotJson(*slot));
        list.push_back(std::move(one));
    }
    return list;
}

std::optional<std::string_view> SlotOfPath(std::string_view path) {
    if (!path.starts_with(kSlotsBelow)) return {};
    const std::string_view id = path.substr(kSlotsBelow.size());
    if (id.empty() || id.find('/') != std::string_view::npos) return {};
    return id;
}

std::optional<ApiError> ReadSlot(const Json& body, int64_t slots, int64_t& id) {
    Fields fields(body);
    id = fields.Integer("id_slot", -1, -1, slots - 1);
    return fields.error();
}

std::optional<ApiError> ReadSlotCommand(std::string_view id, std::string_view action,
                                        const Json& body, int64_t slots, SlotCommand& ask) {
    const std::optional<int64_t> number = NumberOf(id);
    if (!number || *number < 0 || *number >= slots) return NoSuchSlot(id, slots);
    ask.id = *number;
    if (action == "erase") {
        ask.action = SlotCommand::Action::kErase;
        return {};
    }
    if (action != "save" && action != "restore") {
        return ApiError{400, "Invalid action: expected ?action=save, restore or erase.", "action",
                        "invalid_value"};
    }
    if (action == "restore") ask.action = SlotCommand::Action::kRestore;
    Fields fields(body);
    ask.filename = fields.Text("filename", "");
    engine::Request restored;
    ReadCaching(fields, restored);
    ask.salt = restored.tenant;
    if (fields.error()) return fields.error();
    if (engine::IsSlotName(ask.filename) && ask.filename.find('/') == std::string::npos) return {};
    return ApiError{400,
                    "Invalid filename: expected a name of 1 to 200 bytes without slashes and "
                    "control characters, which does not begin with a dot.",
                    "filename", "invalid_value"};
}

ApiError SlotError(const Error& error, const std::string& folder) {
    ApiError answer = ErrorOf(error);
    const std::string hidden = folder + "/";
    for (size_t at; (at = answer.message.find(hidden)) != std::string::npos;) {
        answer.message.erase(at, hidden.size());
    }
    const bool of_file = error.code == ErrorCode::kNotFound || error.code == ErrorCode::kCorrupt;
    if (of_file) answer.status = 400;  // as in llama-server
    if (error.code == ErrorCode::kOutOfMemory) answer.status = 507;
    answer.param = "filename";
    answer.code = error.code == ErrorCode::kNotFound      ? "file_not_found"
                  : error.code == ErrorCode::kCorrupt     ? "file_damaged"
                  : error.code == ErrorCode::kUsage       ? "file_of_another_job"
                  : error.code == ErrorCode::kOutOfMemory ? "storage_full"
                                                          : answer.code;
    return answer;
}

Json SlotAnswer(const SlotCommand& ask, const engine::SlotRequest::Done& done) {
    const bool saves = ask.action == SlotCommand::Action::kSave;
    return {{"id_slot", ask.id},
            {"filename", ask.filename},
            {saves ? "n_saved" : "n_restored", done.pages_tokens},
            {saves ? "n_written" : "n_read", done.bytes},
            {"timings", {{saves ? "save_ms" : "restore_ms", 1000 * done.seconds}}}};
}

}  // namespace weft::serve
