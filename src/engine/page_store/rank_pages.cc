#include "engine/page_store/rank_pages.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/own_folder.h"
#include "engine/page_store/folder_store.h"
#include "engine/page_store/ram_store.h"

namespace weft::engine {
namespace {

// Most bytes of used pages that are read from the device for one step, if no tier keeps them.
constexpr int64_t kReadAgainBytes = int64_t{32} << 20;
// A slot file counts as at least this much, which limits the number of files.
constexpr int64_t kLeastSlotBytes = int64_t{1} << 20;

// Whether `path` is a file of the save whose rank 0 has the file `first`, maybe an unfinished one.
bool IsOfSave(const std::filesystem::path& path, const std::filesystem::path& first) {
    if (path.parent_path() != first.parent_path()) return false;
    const std::string own = first.filename().string(), name = path.filename().string();
    if (!name.starts_with(own)) return false;
    std::string_view suffix = std::string_view(name).substr(own.size());
    if (suffix.ends_with(".part")) suffix.remove_suffix(5);
    if (!suffix.starts_with(".rank")) return suffix.empty();
    return suffix.find_first_not_of("0123456789", 5) == suffix.npos;
}

// Bytes of the slot files in a folder and below it, except files of the save whose rank 0 has the
// file `first`: other ranks may write and replace these meanwhile.
int64_t SlotBytesIn(const std::string& folder, const std::string& first) {
    int64_t bytes = 0;
    std::error_code error;
    std::filesystem::recursive_directory_iterator at(folder, error), end;
    for (; !error && at != end; at.increment(error)) {
        struct stat info {};
        if (IsOfSave(at->path(), first) || ::lstat(at->path().c_str(), &info) != 0) continue;
        if (S_ISREG(info.st_mode)) bytes += std::max<int64_t>(kLeastSlotBytes, info.st_size);
    }
    return bytes;
}

}  // namespace

Result<std::unique_ptr<RankPages>> RankPages::Open(const Job& job) {
    auto pages = std::make_unique<RankPages>();
    if (!job.slot_dir.empty()) {
        WEFT_TRY(MakeOwnFolder("--slot-save-path", job.slot_dir));
        auto slots = std::make_unique<SlotFiles>();
        pages->slots_ = slots.get();
        pages->slot_dir_ = job.slot_dir;
        pages->slot_disk_ = job.slot_disk;
        pages->text_ = fmt::format("slots in {}", job.slot_dir);
        pages->tiers_.push_back(std::move(slots));
    }
    if (job.cache_ram > 0) {
        pages->tiers_.push_back(std::make_unique<RamStore>(job.cache_ram));
        pages->text_ += fmt::format("{}{} of memory per rank", pages->text_.empty() ? "" : ", ",
                                    BytesText(static_cast<uint64_t>(job.cache_ram)));
    }
    if (!job.cache_dir.empty()) {
        WEFT_ASSIGN(auto folder, FolderStore::Open(job.cache_dir, job.cache_disk));
        pages->text_ +=
            fmt::format("{}{} of {} in {}", pages->text_.empty() ? "" : ", ",
                        BytesText(static_cast<uint64_t>(folder->counts().held_bytes)),
                        BytesText(static_cast<uint64_t>(job.cache_disk)), job.cache_dir);
        pages->tiers_.push_back(std::move(folder));
    }
    if (pages->tiers_.empty()) return std::unique_ptr<RankPages>();
    return pages;
}

void RankPages::Share::Add(program::ValueId id, int64_t piece_bytes) {
    pieces.push_back({id, piece_bytes});
    bytes += piece_bytes;
}

void RankPages::Use(backend::Executable& executable, int64_t page_tokens,
                    const Sha256Digest& shard) {
    executable_ = &executable;
    shard_ = shard;
    pages_ = states_ = {};
    const program::Program& program = executable.program();
    for (size_t i = 0; i < program.values.size(); ++i) {
        const program::Value& value = program.values[i];
        const auto id = static_cast<program::ValueId>(i);
        if (value.storage == program::Storage::kState) {
            pages_.Add(id, program::StateBytes(value, page_tokens));
        } else if (value.storage == program::Storage::kSlots) {
            states_.Add(id, program::SlotBytes(value));
        }
    }
}

int64_t RankPages::Leading(std::span<const PageKey> keys) {
    const auto has = [&](const PageKey& key) {
        const PageKey share = KeyOfShare({key}, shard_);
        return std::ranges::any_of(tiers_, [&](const auto& tier) { return tier->Has(share); });
    };
    return std::ranges::find_if_not(keys, has) - keys.begin();
}

bool RankPages::HasState(const PageKey& key) {
    const PageKey share = KeyOfShare({key, -1, true}, shard_);
    return std::ranges::any_of(tiers_, [&](const auto& tier) { return tier->Has(share); });
}

Status RankPages::Save(std::span<const KeyedPage> pages) {
    std::vector<Unkept> unkept;
    std::vector<PageKey> keys;
    int64_t left = kReadAgainBytes;
    for (const KeyedPage& page : pages) {
        const PageKey& key = keys.emplace_back(KeyOfShare(page, shard_));
        const auto kept = [&](const auto& tier) { return tier->IsKept(key); };
        const auto elsewhere = [&](const auto& tier) { return tier.get() != slots_ && kept(tier); };
        const auto size = static_cast<size_t>(ShareOf(page).bytes);
        if (page.is_used && (left <= 0 || std::ranges::any_of(tiers_, elsewhere))) continue;
        if (page.is_used) left -= ShareOf(page).bytes;
        if (std::ranges::all_of(tiers_, kept)) continue;
        unkept.push_back(
            {key, page.place, page.is_state, std::make_shared<std::vector<std::byte>>(size)});
    }
    WEFT_TRY(ReadAll(unkept));
    for (const Unkept& page : unkept) {
        for (const auto& tier : tiers_) tier->Put(page.key, page.bytes);
    }
    std::ranges::reverse(keys);
    for (const auto& tier : tiers_) {
        for (const PageKey& key : keys) tier->Touch(key);
    }
    return {};
}

// One call for all pages, because each call waits for the device.
Status RankPages::ReadAll(std::span<const Unkept> pages) {
    std::vector<backend::ReadPart> parts;
    for (const Unkept& page : pages) {
        std::span<std::byte> left = *page.bytes;
        for (const Share::Piece& piece : (page.is_state ? states_ : pages_).pieces) {
            const auto bytes = static_cast<size_t>(piece.bytes);
            parts.push_back({piece.id, page.place * piece.bytes, left.first(bytes)});
            left = left.subspan(bytes);
        }
    }
    return executable_->ReadAll(parts);
}

Result<int64_t> RankPages::Restore(std::span<const KeyedPage> pages,
                                   std::atomic<int64_t>& progress) {
    for (size_t i = 0; i < pages.size(); ++i) {
        const PageKey key = KeyOfShare(pages[i], shard_);
        const Share& share = ShareOf(pages[i]);
        run_.resize(static_cast<size_t>(share.bytes));
        const auto got = [&](const auto& tier) { return tier->Get(key, run_); };
        if (std::ranges::none_of(tiers_, got)) return static_cast<int64_t>(i);
        std::vector<backend::WritePart> parts;
        std::span<const std::byte> left = run_;
        for (const Share::Piece& piece : share.pieces) {
            const auto bytes = static_cast<size_t>(piece.bytes);
            parts.push_back({piece.id, pages[i].place * piece.bytes, left.first(bytes)});
            left = left.subspan(bytes);
        }
        WEFT_TRY(executable_->WriteAll(parts));
        progress.fetch_add(1, std::memory_order_relaxed);
    }
    return static_cast<int64_t>(pages.size());
}

// ---- Slots --------------------------------------------------------------------------------------

std::string RankPages::SlotPath(const std::string& name, int rank) const {
    return fmt::format("{}/{}{}", slot_dir_, name, rank == 0 ? "" : fmt::format(".rank{}", rank));
}

// Older files of the same name are replaced.
Status RankPages::CheckFreeSpace(const std::string& path, int64_t bytes) const {
    const auto check = [&](const std::string& folder, int64_t most, const char* whose,
                           const char* part) -> Status {
        const int64_t all = SlotBytesIn(folder, path) + bytes;
        if (all <= most) return {};
        return MakeError(ErrorCode::kOutOfMemory,
                         "{}: the saved conversations{} would take {}; the limit is {} "
                         "({}--slot-save-size). Save under the name of an older one, or remove "
                         "files on the server",
                         path, whose, BytesText(static_cast<uint64_t>(all)),
                         BytesText(static_cast<uint64_t>(most)), part);
    };
    if (path.find('/', slot_dir_.size() + 1) != std::string::npos) {
        WEFT_TRY(
            check(path.substr(0, path.rfind('/')), slot_disk_ / 2, " of this key", "half of "));
    }
    return check(slot_dir_, slot_disk_, "", "");
}

int64_t RankPages::SizeSlot(std::span<const KeyedPage> pages, SlotHead& head) const {
    const bool has_state = !pages.empty() && pages.back().is_state;
    head.pages = std::ssize(pages) - (has_state ? 1 : 0);
    head.page_bytes = pages_.bytes;
    head.state_bytes = has_state ? states_.bytes : 0;
    return std::max(SlotFileBytes(head), kLeastSlotBytes);
}

Result<RankPages::SlotOutcome> RankPages::SaveSlot(const std::string& name, int rank,
                                                   int64_t host_bytes, const SlotHead& head,
                                                   std::span<const KeyedPage> pages,
                                                   std::atomic<int64_t>& progress) {
    const std::string path = SlotPath(name, rank);
    Status read;
    const auto read_entries = [&](int64_t first, std::span<std::vector<std::byte>> entries) {
        std::vector<Unkept> run;
        for (size_t i = 0; i < entries.size(); ++i) {
            const KeyedPage& page = pages[static_cast<size_t>(first) + i];
            const auto size = static_cast<size_t>(ShareOf(page).bytes);
            run.push_back({page.key, page.place, page.is_state,
                           std::make_shared<std::vector<std::byte>>(size)});
        }
        read = ReadAll(run);
        for (size_t i = 0; i < entries.size(); ++i) entries[i] = std::move(*run[i].bytes);
        progress.fetch_add(1, std::memory_order_relaxed);
        return read;
    };
    if (path.find('/', slot_dir_.size() + 1) != std::string::npos) {
        const Status made = MakeOwnFolder("--slot-save-path", path.substr(0, path.rfind('/')));
        if (!made.ok()) return SlotOutcome{0, made.error()};
    }
    if (const Status room = CheckFreeSpace(SlotPath(name, 0), host_bytes); !room.ok()) {
        return SlotOutcome{0, room.error()};
    }
    auto written = WriteSlotFile(path, head, read_entries);
    if (!read.ok()) return read.error();
    if (!written.ok()) return SlotOutcome{0, written.error()};
    return SlotOutcome{SlotFileBytes(head), {}, *std::move(written)};
}

Status RankPages::CheckSlot(const SlotFile& file, const Sha256Digest& set, size_t entries) const {
    const SlotHead& head = file.head();
    const bool empty = file.entries() == 0;
    if (head.set == set && std::cmp_equal(file.entries(), entries) &&
        (empty || (head.page_bytes == pages_.bytes &&
                   (head.state_bytes == 0 || head.state_bytes == states_.bytes)))) {
        return {};
    }
    return MakeError(ErrorCode::kUsage,
                     "this rank's file belongs to another save than rank 0's. Copy the files of "
                     "all ranks (NAME, NAME.rank1, ...) together");
}

RankPages::SlotOutcome RankPages::LoadSlot(const std::string& path, const Sha256Digest& set,
                                           std::span<const KeyedPage> pages,
                                           std::atomic<int64_t>& progress) {
    auto file = SlotFile::Open(path);
    if (!file.ok()) return {0, file.error(), {}};
    Status good = CheckSlot(**file, set, pages.size());
    if (good.ok()) good = (*file)->Verify(progress);
    if (!good.ok()) return {0, good.error(), {}};
    std::vector<PageKey> keys;
    for (const KeyedPage& page : pages) keys.push_back(KeyOfShare(page, shard_));
    const int64_t bytes = SlotFileBytes((*file)->head());
    slots_->Add(*std::move(file), keys);
    return {bytes, {}, {}};
}

std::string RankPages::Text() const {
    return fmt::format("kept KV pages: {}; {} a page", text_,
                       BytesText(static_cast<uint64_t>(pages_.bytes)));
}

PageStoreCounts RankPages::counts() const {
    PageStoreCounts all;
    for (const auto& tier : tiers_) {
        const PageStoreCounts counts = tier->counts();
        all.held_bytes = counts.held_bytes;
        all.read_bytes += counts.read_bytes;
        all.written_bytes += counts.written_bytes;
        all.dropped += counts.dropped;
        all.damaged += counts.damaged;
    }
    return all;
}

}  // namespace weft::engine
