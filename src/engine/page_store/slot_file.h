// Slot files: the pages of one conversation under a name, for POST /slots/ID?action=save|restore.
//
// Each rank writes its shares into its own file of --slot-save-path: NAME on rank 0, NAME.rank1 on
// rank 1, and so on. The files of one save belong together (SlotHead::set) and need nothing else,
// so they can be moved to another host. Pages are kept by their position in the text, not by their
// keys: the files have no owner, and a client that restores a name gets its pages under its own
// keys.
//
// Layout, little-endian: a header (magic, format, CRC-32C of all up to the pages, SlotHead's
// fields), the tokens, a CRC-32C of each page and of the state, the pages, the state of the
// recurrent layers after the last page.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "base/result.h"
#include "engine/page_store/page_store.h"

namespace weft::engine {

struct SlotHead {
    Sha256Digest set{};    // of the conversation and the job, the same in the files of all ranks
    Sha256Digest model{};  // of the model's fingerprint; rank 0
    Sha256Digest job{};    // of all on which the pages depend besides the text; rank 0
    int64_t adapter = 0;   // number of the conversation's adapter; 0: none
    std::vector<int32_t> tokens{};  // rank 0
    int64_t pages = 0, page_bytes = 0;
    int64_t state_bytes = 0;  // 0: no state
};

// Bytes of the file with this head.
int64_t SlotFileBytes(const SlotHead& head);

// Whether the name in a request (with its folder, if any) is safe as a file name.
bool IsSlotName(std::string_view name);

// Writes a file; Finish() gives it its name. read: fills `entries`, of which the first is entry
// `first`: a page or, after the last page, the state; its error is returned. Errors: as OutputFile.
using ReadEntries = std::function<Status(int64_t first, std::span<std::vector<std::byte>> entries)>;
Result<OutputFile> WriteSlotFile(const std::string& path, const SlotHead& head,
                                 const ReadEntries& read);

// An open file.
class SlotFile {
  public:
    // Reads the head and checks it against the file's size. Errors: kNotFound; kCorrupt: it is no
    // slot file, or it is damaged; kIo.
    static Result<std::shared_ptr<SlotFile>> Open(const std::string& path);
    const SlotHead& head() const { return head_; }
    int64_t entries() const { return head_.pages + (head_.state_bytes > 0 ? 1 : 0); }
    int64_t bytes_of(int64_t entry) const;
    // Whether the entry was read and is not damaged; `out` has its size.
    bool Read(int64_t entry, std::span<std::byte> out) const;
    // Reads all entries. progress: increases with each. Errors: kCorrupt.
    Status Verify(std::atomic<int64_t>& progress) const;

  private:
    Status ReadHead(int64_t file_bytes);
    Error Damaged(std::string_view what) const;
    std::string path_;
    Fd fd_;
    SlotHead head_;
    std::vector<uint32_t> crcs_;
    int64_t first_byte_ = 0;  // of the first page
};

// The restored files of a rank, as a tier to which no pages can be added.
class SlotFiles final : public PageStore {
  public:
    static constexpr size_t kMostFiles = 64;  // then the oldest is forgotten
    // keys: of the file's entries, perhaps of fewer.
    void Add(std::shared_ptr<SlotFile> file, std::span<const PageKey> keys);

    bool Has(const PageKey& key) override { return places_.contains(key); }
    bool IsKept(const PageKey& /*key*/) override { return true; }
    void Put(const PageKey& /*key*/, const PageBytes& /*bytes*/) override {}
    bool Get(const PageKey& key, std::span<std::byte> out) override;
    PageStoreCounts counts() const override { return counts_; }

  private:
    struct Place {
        std::shared_ptr<SlotFile> file;
        int64_t entry;
    };
    std::map<PageKey, Place> places_;
    std::deque<std::shared_ptr<SlotFile>> files_;  // oldest first
    PageStoreCounts counts_;
};

}  // namespace weft::engine
