# use_carried_libraries CARRIED LINKS BUILD REFERENCE: where pack.sh's folder CARRIED is there, makes the programs of both builds run on a machine
# that lacks some of their libraries. Only what is missing comes from CARRIED, or from CUDA's and PyTorch's own folders, as
# links in LINKS on LD_LIBRARY_PATH: the machine's own programs keep theirs. Sourced by first_day.sh.

# Folders with libraries of CUDA: PyTorch's packages first, so that both programs use the same cuBLAS and NCCL.
cuda_folders() {
  "$python" - << 'PYTHON' 2> /dev/null || true
import glob, site
for place in site.getsitepackages() + [site.getusersitepackages()]:
    print("\n".join(sorted(glob.glob(place + "/nvidia/*/lib"))))
PYTHON
  ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/lib/x86_64-linux-gnu 2> /dev/null || true
}

# missing_of FILES…: names of libraries that they need and the loader doesn't find.
missing_of() {
  LD_LIBRARY_PATH=$links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ldd "$@" 2> /dev/null | awk '/not found/ { print $1 }' | sort -u
}

use_carried_libraries() {
  local carried=$1 links=$2 build=$3 reference=$4 name folder found mpi=no programs=() folders=()
  [ -d "$carried" ] || return 0
  mkdir -p "$links"
  mapfile -t folders < <(echo "$carried/lib"; cuda_folders)
  mapfile -t programs < <(find "$build" "$reference" -maxdepth 1 -type f -perm -u+x 2> /dev/null || true; find -L "$carried" -name '*.so' -path '*openmpi*')
  [ -z "$(LD_LIBRARY_PATH=$links missing_of "$build/forge" | grep '^libmpi[.]')" ] || mpi=yes
  for _ in 1 2 3 4 5 6; do  # what a library needs itself is seen once it is there
    found=no
    while read -r name; do
      for folder in "${folders[@]}"; do
        if [ -e "$folder/$name" ] && [ ! -e "$links/$name" ]; then
          ln -s "$folder/$name" "$links/$name"
          found=yes
        fi
      done
    done < <(missing_of "${programs[@]}")
    [ "$found" = yes ] || break
  done
  name=$(missing_of "$build/forge" | tr '\n' ' ')
  [ -z "$name" ] || refuse "no ${name}on this machine, neither carried nor in CUDA's or PyTorch's folders"
  export LD_LIBRARY_PATH=$links${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if [ "$mpi" = no ] && command -v mpirun > /dev/null; then return; fi
  export OPAL_PREFIX=$carried/usr PATH=$carried/usr/bin:$PATH OMPI_MCA_plm=isolated
  export OMPI_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_pcompress_base_silence_warning=1
}
