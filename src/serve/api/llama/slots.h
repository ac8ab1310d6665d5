// Slots of llama-server's API: GET /slots and POST /slots/ID?action=save|restore|erase.
//
// Weft's sequences need no slots. Here, a slot is what a client may name: it remembers the last
// text of the requests that used it, so that this text's part of the KV cache can be saved under a
// name. Each API key has slots of its own, as many as sequences run at once. A request without
// id_slot gets a slot as in llama-server: an idle one whose text begins like the prompt and has the
// same cache_salt, else the one that was idle for the longest time. Slots limit nothing: if two
// requests use one, it remembers the text of the later one.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/api/fields.h"

namespace weft::serve {

class SlotTable : public std::enable_shared_from_this<SlotTable> {
  public:
    // Most tokens that all slots of all keys remember: 64 MiB. Then the slots that were not used
    // for the longest time forget theirs.
    static constexpr int64_t kMostTokens = int64_t{1} << 24;
    struct Text {
        std::vector<int32_t> tokens;
        int32_t adapter = 0;
        std::string tenant{};  // engine::Request::tenant
    };

    // slots: of each owner. context: most tokens of a sequence.
    SlotTable(int64_t slots, int64_t context, bool speculative)
        : slots_(slots), context_(context), speculative_(speculative) {}
    int64_t size() const { return slots_; }

    // A request that uses a slot. Thread: one caller, except where a comment says otherwise.
    class Use {
      public:
        Use(std::shared_ptr<SlotTable> table, std::string owner, int64_t id, uint64_t number);
        ~Use();
        void Add(int32_t token) {
            said_.push_back(token);
            count_.store(static_cast<int64_t>(said_.size()), std::memory_order_relaxed);
        }
        void SetCached(int64_t tokens) { cached_ = tokens; }
        int64_t id() const { return id_; }
        int64_t count() const { return count_.load(std::memory_order_relaxed); }  // any thread

      private:
        const std::shared_ptr<SlotTable> table_;
        const std::string owner_;
        const int64_t id_;
        const uint64_t number_;
        std::vector<int32_t> said_;
        std::atomic<int64_t> count_{0};
        int64_t cached_ = 0;
    };

    // Begins a request. wanted: the requested slot's number; -1: any.
    std::shared_ptr<Use> Begin(const std::string& owner, int64_t wanted,
                               const engine::Request& request);
    // The text that a slot remembers.
    Text TextOf(const std::string& owner, int64_t id) const;
    // The slot remembers a restored text from now on.
    void Put(const std::string& owner, int64_t id, Text text);
    // Forgets the slot's text; returns the number of its tokens.
    int64_t Erase(const std::string& owner, int64_t id);
    Json Describe(const std::string& owner) const;
    // Whether some slot of the owner has no running request.
    bool HasIdle(const std::string& owner) const;

  private:
    using Tokens = std::vector<int32_t>;
    struct Slot {
        std::shared_ptr<const Tokens> text{};  // null: none
        int32_t adapter = 0;
        std::string tenant{};  // of the text
        uint64_t number = 0;   // of the last request; 0: none
        uint64_t used = 0;     // order of the last use
        int64_t prompt = 0, cached = 0, max_tokens = -1;
        const Use* use = nullptr;  // the request that runs
        int64_t tokens() const { return text == nullptr ? 0 : std::ssize(*text); }
    };
    using Slots = std::vector<Slot>;
    Slots& Of(const std::string& owner);
    int64_t Choose(const Slots& slots, const engine::Request& request) const;
    void Set(Slot& slot, std::shared_ptr<const Tokens> text);
    void Touch(Slot& slot);
    void End(const std::string& owner, int64_t id, uint64_t number,
             const std::vector<int32_t>& said, int64_t cached);
    static Json SlotJson(const Slot& slot);

    const int64_t slots_, context_;
    const bool speculative_;
    mutable std::mutex mutex_;  // guards the following
    std::map<std::string, Slots> owners_;
    uint64_t number_ = 0, clock_ = 0;
    int64_t tokens_ = 0;  // that all slots remember
};

inline constexpr std::string_view kSlotsBelow = "/slots/";
// The slot's number in the path "/slots/ID"; nullopt: another path.
std::optional<std::string_view> SlotOfPath(std::string_view path);
// Reads id_slot of a request for an answer: -1 or absent: any.
std::optional<ApiError> ReadSlot(const Json& body, int64_t slots, int64_t& id);

// The request of POST /slots/ID.
struct SlotCommand {
    enum class Action { kSave, kRestore, kErase };
    Action action = Action::kSave;
    int64_t id = 0;
    std::string filename;
    std::string salt{};  // cache_salt of a restored text
};
// Errors: 400: the slot, the action, or the file's name.
std::optional<ApiError> ReadSlotCommand(std::string_view id, std::string_view action,
                                        const Json& body, int64_t slots, SlotCommand& ask);
// folder: hidden in the message.
ApiError SlotError(const Error& error, const std::string& folder);
Json SlotAnswer(const SlotCommand& ask, const engine::SlotRequest::Done& done);

}  // namespace weft::serve
