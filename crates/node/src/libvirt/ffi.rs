//! Calls of libvirt that the crate `virt` lacks. All of this program's `unsafe`
//! is here.

#![allow(
    unsafe_code,
    reason = "the one file that has it; each block says why it is sound"
)]

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr;
use std::sync::mpsc::Sender;

use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

use super::events::{End, Event};

/// Sends what happens to domains, and that the connection is lost.
pub(super) fn on_lifecycle(connect: &Connect, sender: Sender<Event>) -> Result<(), Error> {
    let callback: unsafe extern "C" fn(
        sys::virConnectPtr,
        sys::virDomainPtr,
        c_int,
        c_int,
        *mut c_void,
    ) -> c_int = lifecycle;
    // SAFETY: libvirt calls callbacks of lifecycle events with exactly these
    // arguments and only stores them under the generic type; the cast is the
    // one its own macro VIR_DOMAIN_EVENT_CALLBACK makes.
    let generic = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(
                sys::virConnectPtr,
                sys::virDomainPtr,
                c_int,
                c_int,
                *mut c_void,
            ) -> c_int,
            unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void),
        >(callback)
    };
    // SAFETY: the connection is valid for the call; libvirt owns the box until
    // it calls `free_sender`, which it does exactly once, or never if the
    // registration fails, in which case it is taken back here.
    unsafe {
        let connect = connect.as_ptr();
        let lost = Box::into_raw(Box::new(sender.clone())).cast();
        if sys::virConnectRegisterCloseCallback(connect, Some(closed), lost, Some(free_sender)) < 0
        {
            free_sender(lost);
            return Err(Error::last_error());
        }
        let happened = Box::into_raw(Box::new(sender)).cast();
        let id = sys::virConnectDomainEventRegisterAny(
            connect,
            ptr::null_mut(),
            c_int::try_from(sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE).unwrap_or(0),
            Some(generic),
            happened,
            Some(free_sender),
        );
        if id < 0 {
            free_sender(happened);
            return Err(Error::last_error());
        }
    }
    Ok(())
}

/// Sends which domains' guests let go of a device, or do not.
pub(super) fn on_devices(connect: &Connect, sender: &Sender<Event>) -> Result<(), Error> {
    type OfDevice =
        unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *const c_char, *mut c_void);
    for (event, callback) in [
        (sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, removed as OfDevice),
        (
            sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED,
            kept as OfDevice,
        ),
    ] {
        // SAFETY: libvirt calls callbacks of these events with exactly these
        // arguments; the cast is the one that its own macro makes. The box is as
        // in `on_lifecycle`.
        unsafe {
            let generic = std::mem::transmute::<
                OfDevice,
                unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void),
            >(callback);
            let sender = Box::into_raw(Box::new(sender.clone())).cast();
            let id = sys::virConnectDomainEventRegisterAny(
                connect.as_ptr(),
                ptr::null_mut(),
                c_int::try_from(event).unwrap_or(0),
                Some(generic),
                sender,
                Some(free_sender),
            );
            if id < 0 {
                free_sender(sender);
                return Err(Error::last_error());
            }
        }
    }
    Ok(())
}

/// Asks a guest to let go of a device, and does not wait for that.
pub(super) fn ask_to_let_go(domain: &Domain, alias: &str) -> Result<(), Error> {
    let alias = CString::new(alias)?;
    // SAFETY: both pointers are valid for the call.
    let outcome = unsafe {
        sys::virDomainDetachDeviceAlias(
            domain.as_ptr(),
            alias.as_ptr(),
            sys::VIR_DOMAIN_AFFECT_LIVE,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(Error::last_error()),
    }
}

/// How large a guest sees a disk.
pub(super) fn capacity(domain: &Domain, target: &str) -> Result<u64, Error> {
    let target = CString::new(target)?;
    let mut info = MaybeUninit::<sys::virDomainBlockInfo>::zeroed();
    // SAFETY: all pointers are valid for the call; zeroes are a value of a
    // structure of numbers.
    unsafe {
        let found =
            sys::virDomainGetBlockInfo(domain.as_ptr(), target.as_ptr(), info.as_mut_ptr(), 0);
        match found {
            0 => Ok(info.assume_init().capacity),
            _ => Err(Error::last_error()),
        }
    }
}

unsafe extern "C" fn removed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: as in `lifecycle`.
    unsafe { tell_of(domain, Event::Removed, opaque) };
}

unsafe extern "C" fn kept(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: *const c_char,
    opaque: *mut c_void,
) {
    // SAFETY: as in `lifecycle`.
    unsafe { tell_of(domain, Event::Kept, opaque) };
}

/// The domain and the sender must be those that libvirt gives a callback.
unsafe fn tell_of(domain: sys::virDomainPtr, event: fn(Uuid) -> Event, opaque: *mut c_void) {
    let mut bytes = [0; 16];
    // SAFETY: libvirt hands over a valid domain, and writes 16 bytes; `opaque` is
    // the box of `on_devices`, alive until `free_sender`.
    unsafe {
        if sys::virDomainGetUUID(domain, bytes.as_mut_ptr()) == 0 {
            let sender = &*opaque.cast::<Sender<Event>>();
            let _ = sender.send(event(Uuid::from_bytes(bytes)));
        }
    }
}

unsafe extern "C" fn lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    detail: c_int,
    opaque: *mut c_void,
) -> c_int {
    let mut bytes = [0; 16];
    // SAFETY: libvirt hands over a valid domain, and writes 16 bytes.
    if unsafe { sys::virDomainGetUUID(domain, bytes.as_mut_ptr()) } < 0 {
        return 0;
    }
    let uuid = Uuid::from_bytes(bytes);
    let (event, detail) = (u32::try_from(event), u32::try_from(detail));
    let told = match event {
        Ok(sys::VIR_DOMAIN_EVENT_STARTED) => Event::Started(uuid),
        Ok(sys::VIR_DOMAIN_EVENT_SUSPENDED) => Event::Paused(uuid),
        Ok(sys::VIR_DOMAIN_EVENT_RESUMED) => Event::Resumed(uuid),
        Ok(sys::VIR_DOMAIN_EVENT_STOPPED) => Event::Stopped(
            uuid,
            match detail {
                Ok(sys::VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN) => End::Shutdown,
                Ok(sys::VIR_DOMAIN_EVENT_STOPPED_DESTROYED) => End::Destroyed,
                _ => End::Failed,
            },
        ),
        _ => return 0,
    };
    // SAFETY: `opaque` is the box of `on_lifecycle`, alive until `free_sender`.
    let sender = unsafe { &*opaque.cast::<Sender<Event>>() };
    // Nobody may be listening any more.
    let _ = sender.send(told);
    0
}

unsafe extern "C" fn closed(_: sys::virConnectPtr, _: c_int, opaque: *mut c_void) {
    // SAFETY: as in `lifecycle`.
    let sender = unsafe { &*opaque.cast::<Sender<Event>>() };
    let _ = sender.send(Event::Lost);
}

unsafe extern "C" fn free_sender(opaque: *mut c_void) {
    // SAFETY: made by `Box::into_raw` in `on_lifecycle`, and freed once.
    drop(unsafe { Box::from_raw(opaque.cast::<Sender<Event>>()) });
}
