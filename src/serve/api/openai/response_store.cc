#include "serve/api/openai/response_store.h"

#include <algorithm>
#include <utility>

namespace weft::serve {
namespace {

// Allocator overhead per heap block.
constexpr int64_t kBlockBytes = 16;

}  // namespace

int64_t HeldBytes(const Json& json) {
    int64_t bytes = sizeof(Json);
    if (json.is_string()) {
        const auto& text = json.get_ref<const std::string&>();
        bytes += static_cast<int64_t>(sizeof(std::string) + text.capacity()) + 2 * kBlockBytes;
    } else if (json.is_array()) {
        bytes += static_cast<int64_t>(sizeof(Json::array_t)) + 2 * kBlockBytes;
        for (const Json& part : json) bytes += HeldBytes(part);
    } else if (json.is_object()) {
        bytes += static_cast<int64_t>(sizeof(Json::object_t)) + 2 * kBlockBytes;
        for (const auto& [name, part] : json.get_ref<const Json::object_t&>()) {
            bytes += static_cast<int64_t>(sizeof(std::string) + name.capacity()) + HeldBytes(part);
        }
    }
    return bytes;
}

void ResponseMemory::Put(const std::string& owner, const std::string& id, Stored stored) {
    const int64_t bytes = stored.held_bytes;
    if (!on() || bytes > most_bytes_) return;
    const std::lock_guard lock(mutex_);
    Erase(id);
    Owner& of = owners_[owner];
    of.bytes += bytes;
    bytes_ += bytes;
    const auto place = of.ids.insert(of.ids.end(), id);
    auto kept = std::make_shared<const Stored>(std::move(stored));
    entries_.emplace(id, Entry{owner, std::move(kept), bytes, place});
    MakeSpace();
}

std::shared_ptr<const ResponseStore::Stored> ResponseMemory::Get(const std::string& owner,
                                                                 const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.owner != owner) return nullptr;
    return found->second.stored;
}

bool ResponseMemory::Remove(const std::string& owner, const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second.owner != owner) return false;
    Erase(id);
    return true;
}

int64_t ResponseMemory::count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(entries_.size());
}

int64_t ResponseMemory::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

// Precondition: the lock is held.
void ResponseMemory::Erase(const std::string& id) {
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    const Entry& entry = found->second;
    const auto of = owners_.find(entry.owner);
    of->second.bytes -= entry.bytes;
    of->second.ids.erase(entry.place);
    if (of->second.ids.empty()) owners_.erase(of);
    bytes_ -= entry.bytes;
    entries_.erase(found);
}

// Drops responses until the limits hold. The lock is held. (There are at most as many owners as
// keys.)
void ResponseMemory::MakeSpace() {
    for (;;) {
        const bool too_many = static_cast<int64_t>(entries_.size()) > most_;
        if (!too_many && bytes_ <= most_bytes_) return;
        const auto largest = std::ranges::max_element(owners_, {}, [&](const auto& owner) {
            return too_many ? static_cast<int64_t>(owner.second.ids.size()) : owner.second.bytes;
        });
        const std::string oldest = largest->second.ids.front();
        Erase(oldest);
    }
}

}  // namespace weft::serve
