// The table of what a snapshot keeps: one row for each source that a check reads.
#pragma once

#include <span>
#include <string_view>

namespace weft::doctor {

enum class SavedForm {
    kThere,    // that the file or folder is there
    kValue,    // the known words of the first line
    kLines,    // the known words of the lines that begin with a key
    kFields,   // the same, with "other" in place of an unknown value
    kTable,    // the lines that begin with a key; unknown words are renamed
    kRules,    // of a firewall: all lines without comments and strings; unknown words are renamed
    kVersion,  // a version or release in each line (that begins with a key)
    kParameters,  // the parameters (NAME=VALUE) whose names are keys
    kGrub,        // /etc/default/grub: the chosen kernel, and parameters
    kPath,        // the known parts of a link's target
    kDevice,      // a name of an interface or RDMA device, or the last part of a path as one
    kGid,         // the IPv4 address in a GID
    kHost,        // the host's name
    kGroup,       // a control group
    kIp,          // JSON of iproute2
    kLog,         // lines of the kernel's log that checks know (kernel_log.h)
};

struct SavedRow {
    // Segments between slashes. A place in a segment: <if> an interface or RDMA device, <pci> a PCI
    // address, <n> a number, <id> an address of Thunderbolt, <ip> an IPv4 address, <release> of a
    // kernel, <word> a known word, <conf> a file of which the last one counts, <unit> a unit of
    // Weft, <a|b> one of these words, <more> anything, left out. A path that ends with '/' is a
    // folder.
    std::string_view path;
    SavedForm form;
    // Beginnings of lines, with '|' between them; one with '*' before it stands anywhere in its
    // line; "@" is a PCI address. None: all lines.
    std::string_view keys = {};
};

std::span<const SavedRow> SavedRows();
const char* SavedFormText(SavedForm form);  // to tell the user what is kept

}  // namespace weft::doctor
