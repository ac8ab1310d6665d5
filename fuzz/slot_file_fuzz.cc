// libFuzzer target: any bytes as a slot's file. An accepted file has all entries that it names.
//     build-fuzz/fuzz/slot_file_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/slot_file
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/page_store/slot_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace weft::engine;
    const auto path =
        std::filesystem::temp_directory_path() / ("weft-slot-fuzz." + std::to_string(::getpid()));
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    const auto file = SlotFile::Open(path);
    if (!file.ok()) return 0;
    if (SlotFileBytes((*file)->head()) != static_cast<int64_t>(size)) std::abort();
    std::atomic<int64_t> progress = 0;
    const bool good = (*file)->Verify(progress).ok();
    if (good && progress != (*file)->entries()) std::abort();
    return 0;
}
