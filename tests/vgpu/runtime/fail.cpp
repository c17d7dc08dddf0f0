#include "fail.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

namespace vgpu {

namespace {

struct Symbol {
  std::uintptr_t begin, end;
  std::string name;
};

// The functions of an ELF file's full symbol table: dladdr knows those with external linkage only, and kernels have
// internal linkage.
std::vector<Symbol> functions_of(const std::string& file) {
  std::vector<Symbol> functions;
  std::ifstream in(file, std::ios::binary);
  const auto read = [&](auto offset, void* to, std::size_t bytes) {
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    return in.good();
  };
  Elf64_Ehdr header{};
  if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return functions;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return functions;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
    std::vector<char> names(sections[section.sh_link].sh_size + 1, '\0');
    if (!read(section.sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym)) ||
        !read(sections[section.sh_link].sh_offset, names.data(), names.size() - 1))
      continue;
    for (const Elf64_Sym& s : symbols)
      if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_name < names.size())
        functions.push_back({s.st_value, s.st_value + std::max<std::uintptr_t>(s.st_size, 1), &names[s.st_name]});
  }
  return functions;
}

std::uintptr_t program_base() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;  // the program comes first
        return 1;
      },
      &base);
  return base;
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

void print_stack() {
  void* frames[24];
  const int n = backtrace(frames, 24);
  for (int i = 2; i < n; ++i) {
    const std::string name = name_of_function(static_cast<char*>(frames[i]) - 1);
    if (!name.empty() && name.rfind("vgpu", 0) != 0) std::fprintf(stderr, "vgpu:   in %s\n", name.c_str());
  }
}

}  // namespace

namespace {

std::string find_name(const void* address) {
  static const auto& functions = *new std::vector<Symbol>(functions_of("/proc/self/exe"));
  static const std::uintptr_t base = program_base();
  const std::uintptr_t place = reinterpret_cast<std::uintptr_t>(address) - base;
  for (const Symbol& s : functions)
    if (place >= s.begin && place < s.end) return demangled(s.name);
  Dl_info info{};
  if (dladdr(address, &info) && info.dli_sname) return demangled(info.dli_sname);
  return "";
}

}  // namespace

std::string name_of_function(const void* address) {
  static std::mutex mutex;
  static auto& known = *new std::map<const void*, std::string>;
  const std::lock_guard lock(mutex);
  const auto found = known.find(address);
  return found != known.end() ? found->second : known[address] = find_name(address);
}

void fail(const std::string& what) {
  static std::mutex mutex;
  mutex.lock();  // the first failure speaks; others wait for the end
  std::fflush(stdout);
  std::fprintf(stderr, "vgpu: error: %s\n", what.c_str());
  print_stack();
  std::fflush(stderr);
  _exit(fail_code);
}

}  // namespace vgpu
