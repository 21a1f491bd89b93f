//! The Windows side: the whole tree sits in a job object that ends with its last handle.
//!
//! The root is created suspended and put into the job before it runs, so nothing it starts can be
//! outside; the job does not allow breaking away. There is no polite way to end a program without a
//! console, so a stop ends the job at once.

use std::io::{self, Read};
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK, JOBOBJECT_BASIC_PROCESS_ID_LIST,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicProcessIdList, JobObjectExtendedLimitInformation,
    QueryInformationJobObject, SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, CREATE_SUSPENDED, INFINITE, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
    WaitForSingleObject,
};

use super::PoliteStop;

/// Exit code of processes that the job ends.
const ENDED: u32 = 1;

/// Most process ids that are asked for at once.
const LISTED: usize = 1024;

/// The job object already holds every descendant.
pub(super) fn claim_all_children(_marker: &str) {}

/// A root process and everything that came from it.
pub(super) struct Tree {
    job: OwnedHandle,
    process: OwnedHandle,
}

impl Tree {
    pub(super) fn start(command: Command, _marker: &str, _polite: PoliteStop) -> io::Result<(Child, Self)> {
        Self::start_with(command, CREATE_NO_WINDOW)
    }

    /// On this process's console, if there is one.
    pub(super) fn start_beside(
        command: Command,
        _marker: &str,
        _polite: PoliteStop,
    ) -> io::Result<(Child, Self)> {
        Self::start_with(command, 0)
    }

    fn start_with(mut command: Command, flags: u32) -> io::Result<(Child, Self)> {
        let job = create_job()?;
        command.creation_flags(CREATE_SUSPENDED | flags);
        let mut child = command.spawn()?;
        match Self::adopt(job, &child) {
            Ok(tree) => Ok((child, tree)),
            Err(error) => {
                // It never ran: it is still suspended, or the job that held it is closed.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn adopt(job: OwnedHandle, child: &Child) -> io::Result<Self> {
        // SAFETY: both handles are open and owned for the length of the call.
        check(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) })?;
        let process = child.as_handle().try_clone_to_owned()?;
        resume(child.id())?;
        Ok(Self { job, process })
    }

    pub(super) fn exit_waiter(&self) -> io::Result<ExitWaiter> {
        Ok(ExitWaiter(self.process.try_clone()?))
    }

    pub(super) fn root_has_ended(&self) -> bool {
        // SAFETY: the handle is open as long as `self` is.
        unsafe { WaitForSingleObject(self.process.as_raw_handle(), 0) == WAIT_OBJECT_0 }
    }

    /// The job keeps the record.
    pub(super) fn observe(&mut self) {}

    pub(super) fn ask(&mut self, _polite: PoliteStop) -> bool {
        false
    }

    pub(super) fn kill(&mut self) {
        // SAFETY: the handle is open as long as `self` is.
        unsafe { TerminateJobObject(self.job.as_raw_handle(), ENDED) };
    }

    pub(super) fn end(&mut self, wait: Duration) -> Vec<u32> {
        let deadline = Instant::now() + wait;
        loop {
            let left = self.members();
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            self.kill();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ids of the processes in the job. Empty only if the system says so: if it cannot tell, the root's
    /// state decides.
    fn members(&self) -> Vec<u32> {
        // The list's header is two 32-bit numbers; ids follow as pointer-sized numbers.
        const HEADER: usize = 8 / size_of::<usize>();
        let mut buffer = vec![0_usize; HEADER + LISTED];
        let size = u32::try_from(size_of_val(buffer.as_slice())).unwrap_or(u32::MAX);
        // SAFETY: the buffer is writable, aligned for the structure, and `size` is its length in bytes.
        let told = unsafe {
            QueryInformationJobObject(
                self.job.as_raw_handle(),
                JobObjectBasicProcessIdList,
                buffer.as_mut_ptr().cast(),
                size,
                ptr::null_mut(),
            )
        };
        // SAFETY: the buffer is longer than the structure and aligned for it; any bits are valid numbers.
        let list = unsafe { &*buffer.as_ptr().cast::<JOBOBJECT_BASIC_PROCESS_ID_LIST>() };
        let listed = usize::try_from(list.NumberOfProcessIdsInList).unwrap_or(0);
        // With more members than fit the call fails, but fills the list.
        if told == 0 && listed == 0 {
            return if self.root_has_ended() { Vec::new() } else { vec![0] };
        }
        buffer.iter().skip(HEADER).take(listed).filter_map(|id| u32::try_from(*id).ok()).collect()
    }
}

/// Members of earlier runs ended with the handle of their job.
pub(super) fn end_leftovers(_marker: &str, _wait: Duration) -> Vec<u32> {
    Vec::new()
}

/// There is no such thing here without rights of an administrator.
pub(super) fn leave_network(_command: &mut Command) {}

pub(super) fn has_other_network(_pid: u32) -> bool {
    false
}

/// Runs a program on this process's own streams until its end. If this process is ended, so is the program; what
/// the program starts is not: a supervisor outlives its server to end its worker and to record the turn.
pub(crate) fn run_beside(mut command: Command) -> io::Result<i32> {
    let job = create_job_with(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK)?;
    command.creation_flags(CREATE_SUSPENDED);
    let mut child = command.spawn()?;
    // SAFETY: both handles are open and owned for the length of the call.
    let begun = check(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) })
        .and_then(|()| resume(child.id()));
    if let Err(error) = begun {
        // It never ran.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(child.wait()?.code().unwrap_or(1))
}

fn create_job() -> io::Result<OwnedHandle> {
    create_job_with(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)
}

fn create_job_with(flags: u32) -> io::Result<OwnedHandle> {
    // SAFETY: null for default security and no name.
    let handle = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is open, and nobody else owns it.
    let job = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = flags;
    let size = u32::try_from(size_of_val(&limits)).unwrap_or(0);
    // SAFETY: the structure lives through the call and `size` is its length.
    check(unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            ptr::from_ref(&limits).cast(),
            size,
        )
    })?;
    Ok(job)
}

/// Lets a process that was created suspended run. It has exactly one thread then.
fn resume(process: u32) -> io::Result<()> {
    // SAFETY: no pointers are passed; a bad result is handled below.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is open, and nobody else owns it.
    let snapshot = unsafe { OwnedHandle::from_raw_handle(handle) };
    let mut entry = THREADENTRY32 {
        dwSize: u32::try_from(size_of::<THREADENTRY32>()).unwrap_or(0),
        ..Default::default()
    };
    let mut resumed = false;
    // SAFETY: the entry is writable and says its size.
    let mut more = unsafe { Thread32First(snapshot.as_raw_handle(), &mut entry) };
    while more != 0 {
        if entry.th32OwnerProcessID == process {
            resume_thread(entry.th32ThreadID)?;
            resumed = true;
        }
        // SAFETY: as above.
        more = unsafe { Thread32Next(snapshot.as_raw_handle(), &mut entry) };
    }
    if resumed { Ok(()) } else { Err(io::Error::other("the new process has no thread")) }
}

fn resume_thread(id: u32) -> io::Result<()> {
    // SAFETY: no pointers are passed; a null result is handled below.
    let handle = unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, id) };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is open, and nobody else owns it.
    let thread = unsafe { OwnedHandle::from_raw_handle(handle) };
    // SAFETY: the handle is open and has the right to resume.
    if unsafe { ResumeThread(thread.as_raw_handle()) } == u32::MAX {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Blocks until a root has ended.
pub(super) struct ExitWaiter(OwnedHandle);

impl ExitWaiter {
    pub(super) fn wait(self) {
        // SAFETY: the handle is open as long as `self` is.
        unsafe { WaitForSingleObject(self.0.as_raw_handle(), INFINITE) };
    }
}

/// Readers are not interrupted here: the end of the job closes the pipes. If something outside holds
/// one, its reader stays behind until that ends.
pub(super) struct Cut;

impl Cut {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn cut(&mut self) {}
}

/// One stream of the root.
pub(super) struct Stream {
    pipe: Box<dyn Read + Send>,
}

impl Stream {
    pub(super) fn stdout(pipe: ChildStdout, _cut: &Cut) -> io::Result<Self> {
        Ok(Self { pipe: Box::new(pipe) })
    }

    pub(super) fn stderr(pipe: ChildStderr, _cut: &Cut) -> io::Result<Self> {
        Ok(Self { pipe: Box::new(pipe) })
    }

    /// Waits for bytes. `Some(0)` is the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.pipe.read(buffer).map(Some)
    }
}
