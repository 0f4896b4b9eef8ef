#!/usr/bin/env bash
# Makes small images to begin with, below a directory: needs qemu-img and qemu-io.
#
#   corpus.sh DIRECTORY
set -euo pipefail
corpus=$1
mkdir -p "$corpus"/{header,tables,compressed,check,stream,tar}

number=0
for options in cluster_size=512 cluster_size=1k,compat=0.10 cluster_size=512,refcount_bits=1 \
    cluster_size=512,refcount_bits=64 cluster_size=16k,extended_l2=on cluster_size=4k,compression_type=zstd; do
    for what in empty plain packed snapshot bitmap; do
        image=$(mktemp)
        qemu-img create -q -f qcow2 -o "$options" "$image" 96k
        [[ $what == empty ]] || qemu-io -f qcow2 -c 'write -P 5 0 32k' -c 'write -z 40k 16k' "$image" >/dev/null
        case $what in
            packed) qemu-io -f qcow2 -c 'write -c -P 6 64k 16k' "$image" >/dev/null || true ;;
            snapshot) qemu-img snapshot -c one "$image" 2>/dev/null || true ;;
            bitmap) qemu-img bitmap --add "$image" one 2>/dev/null || true ;;
        esac
        number=$((number + 1))
        for target in header tables check; do cp "$image" "$corpus/$target/$number"; done
        # The byte at the end says how it is wrapped.
        for wrapping in 'gzip -nc' 'xz -c' 'zstd -qc' cat; do
            case $wrapping in gzip*) byte='\x00' ;; xz*) byte='\x01' ;; zstd*) byte='\x02' ;; *) byte='\x07' ;; esac
            # A few of the wrapped will do: they all hold images like the others.
            [[ $wrapping == cat || $number -le 6 ]] || continue
            { $wrapping <"$image" && printf '%b' "$byte"; } >"$corpus/stream/$number-${wrapping%% *}"
        done
        rm "$image"
    done
done

# One packed cluster of each kind, behind the byte that says which it is.
for kind in zlib zstd; do
    image=$(mktemp)
    qemu-img create -q -f qcow2 -o "cluster_size=4k,compression_type=$kind" "$image" 64k
    qemu-io -f qcow2 -c 'write -c -P 6 0 4k' "$image" >/dev/null
    end=$(stat -c %s "$image")
    # Twice the exponent of the cluster above 9, and one more for zstd.
    if [[ $kind == zlib ]]; then byte='\x06'; else byte='\x07'; fi
    { printf '%b' "$byte" && tail -c $((end - (end - 1) / 4096 * 4096)) "$image"; } >"$corpus/compressed/$kind"
    rm "$image"
done
echo "$number images"

# Archives of each form, of files, links, long names and holes.
tree=$(mktemp -d)
mkdir -p "$tree/disk"
echo data >"$tree/disk/disk.img"
ln -s ../disk "$tree/disk/link"
ln "$tree/disk/disk.img" "$tree/disk/other"
echo more >"$tree/$(printf 'long%.0s' {1..40})"
truncate -s 64k "$tree/disk/holes"
for form in v7 oldgnu gnu ustar posix; do
    tar -C "$tree" --format "$form" --sparse -cf "$corpus/tar/$form" . 2>/dev/null || rm -f "$corpus/tar/$form"
    ! [[ -e $corpus/tar/$form ]] || printf '\x01' >>"$corpus/tar/$form"
done
rm -r "$tree"
