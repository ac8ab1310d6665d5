// The table of saved fields: one row for each source that a check reads.
#pragma once

#include <span>
#include <string_view>

namespace weft::doctor {

enum class SavedForm {
    kThere,       // only that the file or folder exists
    kValue,       // the known words of the first line
    kLines,       // the known words of the lines that begin with a key
    kFields,      // like kLines, but an unknown value becomes "other"
    kTable,       // the lines that begin with a key; unknown words are renamed
    kRules,       // a firewall's lines without comments and strings; unknown words are renamed
    kVersion,     // a version or release in each line (that begins with a key)
    kParameters,  // the parameters (NAME=VALUE) whose names are keys
    kGrub,        // /etc/default/grub: the chosen kernel, and parameters
    kPath,        // the known parts of a symbolic link's target
    kDevice,      // name of an interface or RDMA device, possibly at the end of a path
    kGid,         // the IPv4 address in a GID
    kHost,        // the host's name
    kGroup,       // a control group
    kIp,          // JSON of iproute2
    kLog,         // lines of the kernel log that checks use (kernel_log.h)
};

struct SavedRow {
    // Segments between slashes. Placeholders in a segment: <if> an interface or RDMA device, <pci>
    // a PCI address, <n> a number, <id> a Thunderbolt address, <ip> an IPv4 address, <release> of a
    // kernel, <icd> a Vulkan driver, <word> a known word, <conf> a file in a folder in which the
    // last file has precedence, <unit> a unit of Weft, <a|b> one of these words, <more> any text,
    // dropped. A path that ends with '/' is a folder.
    std::string_view path;
    SavedForm form;
    // Keys: beginnings of the lines that are saved, separated by '|'. A key after "*" may be
    // anywhere in the line. The key "@" is a PCI address. Empty: all lines are saved.
    std::string_view keys = {};
};

std::span<const SavedRow> SavedRows();
const char* SavedFormText(SavedForm form);  // for the user

}  // namespace weft::doctor
