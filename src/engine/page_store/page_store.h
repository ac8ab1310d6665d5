// PageStore: keeps a rank's shares of KV pages outside of the device's memory, by their keys. A
// tier of memory (RamStore) and a tier of files (FolderStore) have this interface.
//
// A store forgets the least recently used pages when it is full, and may forget any page at any
// time. No function fails: a page that cannot be read, or whose bytes differ from the bytes that
// were put, counts as absent. Thread: one caller, except where a class says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/page_store/page_key.h"

namespace weft::engine {

// Shared by the tier of memory and the queue of pages to be written.
using PageBytes = std::shared_ptr<const std::vector<std::byte>>;

// Since the start, except held_bytes.
struct PageStoreCounts {
    int64_t held_bytes = 0;  // bytes in the store, as far as this process has seen
    int64_t read_bytes = 0, written_bytes = 0;
    int64_t dropped = 0;  // pages that were put but not stored: the disk is full or too slow
    int64_t damaged = 0;  // pages whose bytes were not those that were put
};

class PageStore {
  public:
    virtual ~PageStore() = default;
    // Whether the store seems to have the page: Get may still fail.
    virtual bool Has(const PageKey& key) = 0;
    // Whether the store has seen that it has the page. Never waits for a disk.
    virtual bool IsKept(const PageKey& key) = 0;
    // Never waits for a disk. Puts the page even if IsKept, because it may have been removed.
    virtual void Put(const PageKey& key, const PageBytes& bytes) = 0;
    // The page was used in the device's memory: it is now the most recently used. Never waits for a
    // disk.
    virtual void Touch(const PageKey& /*key*/) {}
    // Fills `out`, which has the size of the page. False: the store does not have the page; `out`
    // may have changed.
    virtual bool Get(const PageKey& key, std::span<std::byte> out) = 0;
    virtual PageStoreCounts counts() const = 0;
};

}  // namespace weft::engine
