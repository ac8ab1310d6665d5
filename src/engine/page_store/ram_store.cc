#include "engine/page_store/ram_store.h"

#include <algorithm>

namespace weft::engine {

void RamStore::Put(const PageKey& key, const PageBytes& bytes) {
    const auto size = static_cast<int64_t>(bytes->size());
    if (size > most_bytes_ || pages_.contains(key)) return;
    while (counts_.held_bytes > most_bytes_ - size) {
        counts_.held_bytes -= static_cast<int64_t>(by_use_.back().bytes->size());
        pages_.erase(by_use_.back().key);
        by_use_.pop_back();
    }
    by_use_.push_front({key, bytes});
    pages_.emplace(key, by_use_.begin());
    counts_.held_bytes += size;
    counts_.written_bytes += size;
}

void RamStore::Touch(const PageKey& key) {
    const auto found = pages_.find(key);
    if (found != pages_.end()) by_use_.splice(by_use_.begin(), by_use_, found->second);
}

bool RamStore::Get(const PageKey& key, std::span<std::byte> out) {
    const auto found = pages_.find(key);
    if (found == pages_.end() || found->second->bytes->size() != out.size()) return false;
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    std::ranges::copy(*found->second->bytes, out.begin());
    counts_.read_bytes += static_cast<int64_t>(out.size());
    return true;
}

}  // namespace weft::engine
